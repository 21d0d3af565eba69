//! agents and environments: apply and list.

use crate::house::{House, redacted};

#[test]
fn applying_a_definition_creates_it_once_and_changes_it_after() {
    let house = House::dev();
    house.write("coder.toml", "name = \"coder\"\nmodel = \"script/echo\"\nsystem = \"Be brief.\"\n");
    let created = house.run(&["agents", "apply", "coder.toml"]).ok();
    assert_eq!(redacted(&created.stdout, &[]), "created agent agent_ID   coder, version 1\n");
    house.write("coder.json", r#"{"name": "coder", "model": "script/echo", "system": "Be long."}"#);
    let updated = house.run(&["agents", "apply", "coder.json", "--json"]).ok().one();
    assert_eq!((&updated["version"], &updated["system"]), (&2.into(), &"Be long.".into()));
    let listed = house.run(&["agents", "list", "--json"]).ok().json();
    assert_eq!(listed.len(), 1);
    assert!(house.run(&["agents", "list"]).ok().stdout.contains("coder"));
    assert_eq!(house.run(&["run", "--agent", "coder", "hello"]).ok().stdout, "hello\n");
}

#[test]
fn an_environment_is_applied_by_name_and_a_warning_is_a_message() {
    let house = House::dev();
    house.write("net.toml", "name = \"net\"\n[config]\ntype = \"cloud\"\nnetwork = \"host\"\n");
    let created = house.run(&["environments", "apply", "net.toml"]).ok();
    assert!(created.stdout.starts_with("created environment env_"), "{created:?}");
    assert!(created.stdout.trim_end().ends_with("net"), "{created:?}");
    let updated = house.run(&["environments", "apply", "net.toml"]).ok();
    assert!(updated.stdout.starts_with("updated environment env_"), "{updated:?}");
    assert_eq!(house.run(&["environments", "list", "--json"]).ok().json().len(), 1);
    assert!(house.run(&["environments", "list"]).ok().stdout.contains("net"));
    assert_eq!(house.run(&["run", "--env", "net", "--model", "script/echo", "hello"]).ok().stdout, "hello\n");
}

#[test]
fn an_empty_list_says_how_to_make_one() {
    let house = House::dev();
    for (kind, word) in [("agents", "agents"), ("environments", "environments")] {
        let ran = house.run(&[kind, "list"]).ok();
        assert_eq!(ran.stdout, "");
        assert_eq!(ran.stderr, format!("No {word}.\nhint: tenure {kind} apply FILE makes one\n"));
    }
}

#[test]
fn a_definition_that_is_wrong_says_where_and_nothing_is_sent() {
    let house = House::dev();
    house.write("good.toml", "name = \"good\"\nmodel = \"script/echo\"\n");
    for (text, expected) in [("name = \"x\"\nmodel = \n", "line 2"), ("model = \"script/echo\"\n", "it has no name")] {
        house.write("bad.toml", text);
        let error = house.run(&["agents", "apply", "good.toml", "bad.toml"]).fails(2);
        assert!(error.contains("bad.toml is no definition of an agent"), "{error}");
        assert!(error.contains(expected) && error.contains("code: definition_invalid"), "{error}");
    }
    assert_eq!(house.run(&["agents", "list", "--json"]).ok().stdout, "", "all files are read before one is sent");
    house.write("bad.toml", "name = \"x\"\nmodel = \"script/echo\"\ntools = [{ type = \"web_search\" }]\n");
    let refused = house.run(&["agents", "apply", "bad.toml"]).fails(2);
    assert!(refused.starts_with("error: cannot apply bad.toml\n  tools[0]"), "{refused}");
    assert!(refused.contains("code: ") && refused.contains("docs: docs/errors/"), "{refused}");
    let missing = house.run(&["environments", "apply", "nope.toml"]).fails(2);
    assert!(missing.contains("nope.toml is no definition of an environment"), "{missing}");
}
