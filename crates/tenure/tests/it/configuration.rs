//! The configuration: layers, origins, and what is said about mistakes.

use crate::house::{House, finish};

#[test]
fn each_setting_says_which_layer_it_comes_from() {
    let house = House::empty();
    house.write(".config/tenure/config.toml", "[worker]\nslots = 3\nlease_seconds = 30\n");
    house.write("tenure.toml", "[worker]\nslots = 5\n");
    let mut command = house.command(&["config", "show", "--origin"]);
    command.env("TENURE_NODE_HEARTBEAT_SECONDS", "2");
    let shown = finish(command).ok().stdout;
    let line = |key: &str| shown.lines().find(|line| line.starts_with(key)).unwrap_or_else(|| panic!("{key}: {shown}"));
    assert!(line("worker.slots").contains("= 5") && line("worker.slots").ends_with("/tenure.toml"), "{shown}");
    assert!(line("worker.lease_seconds").ends_with(".config/tenure/config.toml"), "{shown}");
    assert!(line("node.heartbeat_seconds").ends_with("# TENURE_NODE_HEARTBEAT_SECONDS"), "{shown}");
    assert!(line("data").ends_with("# TENURE_DATA"), "{shown}");
    assert!(line("listen").ends_with("# default"), "{shown}");
    let flag = house.run(&["config", "show", "--origin", "--data", "elsewhere", "--json"]).ok().json();
    let data = flag.iter().find(|setting| setting["key"] == "data").unwrap();
    assert_eq!(data["origin"], "--data");
    assert_eq!(data["value"].as_str().unwrap(), house.path("elsewhere").to_str().unwrap());
    let plain = house.run(&["config", "show"]).ok().stdout;
    assert!(plain.contains("worker.slots = 5\n") && !plain.contains('#'), "{plain}");
}

#[test]
fn a_mistake_in_the_file_is_named_with_line_and_what_was_perhaps_meant() {
    let house = House::empty();
    for (text, expected) in [
        ("[worker]\nslotz = 3\n", &["tenure.toml, line 2: unknown key `slotz`", "did you mean `slots`?"][..]),
        ("[modles]\n", &["line 1: unknown key `modles`", "did you mean `models`?"]),
        ("[worker]\nslots = \"many\"\n", &["line 2: expected a whole number", "found the text \"many\""]),
        ("listen = 5\n", &["line 1: expected a text", "found the whole number 5"]),
        ("listen = \"here\"\n", &["listen is not an address with a port such as \"127.0.0.1:7373\"", "set by "]),
        ("[worker]\nslots = 0\n", &["worker.slots must be from 1 to 4096, not 0", "set by "]),
        ("[node]\nheartbeat_seconds = 9\n", &["node.dead_after_seconds must be at least twice"]),
        ("public_url = \"example.com\"\n", &["public_url must start with http:// or https://"]),
        (
            "[store]\nurl = \"mysql://me:secret@db/x\"\n",
            &["store.url starts with mysql:, and must be sqlite:PATH or postgres://USER@HOST/NAME"],
        ),
        ("[providers.x]\ndialect = \"gpt\"\n", &["line 2: unknown variant `gpt`", "`anthropic`"]),
        ("listen = \"127.0.0.1:1\n", &["line 1: "]),
    ] {
        house.write("tenure.toml", text);
        for command in [&["config", "show"][..], &["ps"], &["dev"], &["doctor"]] {
            let error = house.run(command).fails(2);
            assert!(expected.iter().all(|part| error.contains(part)), "{text}: {error}");
            assert!(error.contains("code: config_invalid"), "{error}");
        }
    }
}

#[test]
fn a_file_that_is_named_must_be_there() {
    let house = House::empty();
    let error = house.run(&["config", "show", "--config", "nope.toml"]).fails(2);
    assert!(error.contains("there is no configuration file") && error.contains("nope.toml"), "{error}");
}

#[test]
fn a_variable_that_is_wrong_is_named() {
    let house = House::empty();
    let mut command = house.command(&["config", "show"]);
    let error = {
        command.env("TENURE_WORKER_SLOTS", "many");
        finish(command)
    }
    .fails(2);
    assert!(error.contains("the variable TENURE_WORKER_SLOTS must be a whole number, not \"many\""), "{error}");
}

#[test]
fn secrets_of_the_configuration_are_never_shown() {
    let house = House::empty();
    house.write(
        "tenure.toml",
        "[providers.x]\ndialect = \"openai\"\nbase_url = \"http://me:pass-123@127.0.0.1:1/v1\"\nheaders = { x-key = \"secret-123\" }\n",
    );
    for command in [&["config", "show", "--origin"][..], &["config", "show", "--json"]] {
        let shown = house.run(command).ok().stdout;
        assert!(shown.contains("(hidden)") && !shown.contains("secret-123") && !shown.contains("pass-123"), "{shown}");
    }
    house.write("tenure.toml", "[providers.x]\ndialect = \"openai\"\napi_key = \"secret-123\"\n");
    let error = house.run(&["config", "show"]).fails(2);
    assert!(error.contains("did you mean `api_key_env`?") && !error.contains("secret-123"), "{error}");
}
