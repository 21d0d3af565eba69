//! Inputs of the tools that wait.

use tenure_core::CallbackId;
use tenure_tools::WaitCall;

#[test]
fn waits_are_read_with_their_times_in_milliseconds() {
    let callback: CallbackId = format!("call_{}", "0".repeat(26)).parse().unwrap();
    assert_eq!(WaitCall::parse("sleep", r#"{"seconds":1.5}"#), Ok(WaitCall::Sleep { millis: 1_500 }));
    assert_eq!(
        WaitCall::parse("create_callback", r#"{"label":"build","expires_seconds":60}"#),
        Ok(WaitCall::CreateCallback { label: "build".into(), expires_millis: Some(60_000) })
    );
    for nothing in ["", "null", "{}", " "] {
        assert_eq!(
            WaitCall::parse("create_callback", nothing),
            Ok(WaitCall::CreateCallback { label: String::new(), expires_millis: None }),
            "o_012: nothing at all is an input without fields"
        );
    }
    let input = format!(r#"{{"callback_id":"{callback}","timeout_seconds":5}}"#);
    let expected = WaitCall::WaitForCallback { callback, timeout_millis: Some(5_000) };
    assert_eq!(WaitCall::parse("wait_for_callback", &input), Ok(expected));
    let long = "x".repeat(1_000);
    let label = WaitCall::parse("create_callback", &format!(r#"{{"label":"{long}"}}"#));
    assert!(matches!(label, Ok(WaitCall::CreateCallback { label, .. }) if label.len() == 200));
}

#[test]
fn o_012_wrong_inputs_of_waits_say_what_where_and_what_to_do() {
    for (name, input, expected) in [
        ("sleep", "{}", "seconds: is missing; give it as a number."),
        ("sleep", "", "seconds: is missing; give it as a number."),
        ("sleep", r#"{"seconds":"5"}"#, "seconds: must be a number, not a string (\"5\")."),
        ("sleep", "5", "The input is a number; sleep takes a JSON object with seconds."),
        ("create_callback", r#"{"label":1}"#, "label: must be a string, not a number (1)."),
        (
            "create_callback",
            r#"{"expires_seconds":0}"#,
            "expires_seconds: must be more than 0, not 0; leave it out for the usual time.",
        ),
        ("wait_for_callback", "{}", "callback_id: is missing; give it as a string."),
        (
            "wait_for_callback",
            r#"{"callback_id":"x"}"#,
            "callback_id: \"x\" is not an id; give the callback_id of a create_callback result.",
        ),
        (
            "wait_for_callback",
            r#"{"id":"x"}"#,
            "callback_id: is missing; give it as a string (\"id\": not known to wait_for_callback, which takes callback_id, timeout_seconds).",
        ),
        ("nap", "{}", "nap is no tool that waits; those are sleep, create_callback, wait_for_callback."),
    ] {
        assert_eq!(WaitCall::parse(name, input), Err(expected.to_owned()), "{name} {input}");
    }
}
