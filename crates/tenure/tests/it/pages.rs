//! doctor, version, completions: what needs no session.

use crate::house::House;
use std::net::TcpListener;

#[test]
fn doctor_has_one_line_per_check_and_says_what_to_do() {
    let house = House::dev();
    let ran = house.run(&["doctor"]);
    // On a machine that lacks a part, doctor says so and fails: its form is the same.
    assert!(matches!(ran.code, 0 | 1), "{ran:?}");
    let checks = house.run(&["doctor", "--json"]).json();
    let has_failed = checks.iter().any(|check| check["verdict"] == "fail");
    assert_eq!(ran.code, i32::from(has_failed));
    for check in &checks {
        let (verdict, fix) = (check["verdict"].as_str().unwrap(), check["fix"].as_str().unwrap());
        assert!(!check["why"].as_str().unwrap().is_empty(), "{check}");
        assert_eq!(
            verdict == "ok" && !check["check"].as_str().unwrap().starts_with("driver "),
            fix.is_empty() && !check["check"].as_str().unwrap().starts_with("driver "),
            "{check}"
        );
    }
    let names: Vec<&str> = checks.iter().map(|check| check["check"].as_str().unwrap()).collect();
    for wanted in [
        "configuration",
        "data folder",
        "disk space",
        "store",
        "key",
        "port",
        "public_url",
        "server",
        "memory cap",
        "process cap",
        "processor cap",
        "disk quota",
        "strongest driver",
        "driver process",
    ] {
        assert!(names.contains(&wanted), "{wanted}: {names:?}");
    }
    assert!(ran.stdout.contains("\nok    server             version "), "{}", ran.stdout);
}

#[test]
fn doctor_fails_when_something_must_be_mended() {
    let house = House::empty();
    house.write("tenure.toml", "[providers.x]\ndialect = \"openai\"\napi_key_env = \"TEST_KEY_THAT_IS_NOT_SET\"\n");
    let ran = house.run(&["doctor"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.stdout.contains("fail  provider x         its key is not there: TEST_KEY_THAT_IS_NOT_SET\n"),
        "{ran:?}"
    );
}

#[test]
fn z_50_no_reachable_public_url() {
    let mut house = House::empty();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let line = |house: &House| {
        let checks = house.run(&["doctor", "--json"]).json();
        checks.into_iter().find(|check| check["check"] == "public_url").unwrap()
    };
    assert!(line(&house)["why"].as_str().unwrap().starts_with("not set"));
    house.write("tenure.toml", format!("public_url = \"{nobody}\"\n"));
    let unreachable = line(&house);
    assert_eq!(unreachable["verdict"], "warn");
    assert!(unreachable["why"].as_str().unwrap().contains(&format!("nothing answers at {nobody}")), "{unreachable}");
    house.write("tenure.toml", "");
    house.start_server(&["serve"]);
    let here = std::fs::read_to_string(house.path("data/server.url")).unwrap();
    house.write("tenure.toml", format!("public_url = \"{here}\"\n"));
    let reachable = line(&house);
    assert_eq!(
        (&reachable["verdict"], &reachable["why"]),
        (&"ok".into(), &format!("{here} answers, seen from here").into())
    );
}

#[test]
fn version_is_a_result_with_and_without_a_server() {
    let house = House::empty();
    let own = format!("tenure {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(house.run(&["version"]).ok().stdout, own);
    assert!(house.run(&["version", "--json"]).ok().one()["server_version"].is_null());
    let house = House::dev();
    assert_eq!(house.run(&["version"]).ok().stdout, own);
    assert_eq!(house.run(&["version", "--json"]).ok().one()["server_version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn completions_exist_for_the_usual_shells_and_name_every_command() {
    let house = House::empty();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = house.run(&["completions", shell]).ok().stdout;
        for command in ["approvals", "environments", "doctor"] {
            assert!(script.contains(command), "{shell} lacks {command}");
        }
        assert!(!script.contains("__demo-ci"), "{shell} names a command that is not for people");
    }
    let bash = house.run(&["completions", "bash"]).ok().stdout;
    house.write("tenure.bash", &bash);
    let check = std::process::Command::new("bash").arg("-n").arg(house.path("tenure.bash")).output().unwrap();
    assert!(check.status.success(), "{check:?}");
    let wrong = house.run(&["completions", "csh"]).fails(2);
    assert!(wrong.contains("csh") && wrong.contains("bash"), "{wrong}");
}
