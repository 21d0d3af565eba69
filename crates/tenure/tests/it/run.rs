//! `tenure run`: prompts, flags, what goes where.

use crate::house::{House, on_a_terminal, redacted};
use serde_json::Value;

#[test]
fn the_answer_is_the_result_and_everything_else_a_message() {
    let house = House::dev();
    let ran = house.run(&["run", "--model", "script/echo", "hello"]).ok();
    assert_eq!(ran.stdout, "hello\n");
    let session = house.run(&["ps", "--json"]).ok().one()["id"].as_str().unwrap().to_owned();
    assert_eq!(
        redacted(&ran.stderr, &[&session]),
        "SESSION   (Ctrl-C detaches, the session goes on)\ndone in SPAN, $0.00 of $20.00.\nhint: tenure ls TAIL      tenure send TAIL \"…\"\n"
    );
}

#[test]
fn programs_get_the_session_and_then_its_events() {
    let house = House::dev();
    let ran = house.run(&["run", "--model", "script/echo", "--json", "hello"]).ok();
    let lines = ran.json();
    assert_eq!(lines[0]["type"], "session");
    let kinds: Vec<&str> = lines[1..].iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds.last(), Some(&"session.status_idle"));
    assert!(kinds.contains(&"agent.message"), "{kinds:?}");
    let detached = house.run(&["run", "--detach", "--model", "script/echo", "--json", "hello"]).ok().one();
    assert_eq!(detached["type"], "session");
}

#[test]
fn the_prompt_comes_from_the_line_a_file_or_standard_input() {
    let house = House::dev();
    house.write("prompt.txt", "from a file");
    let said =
        |given: &str, input: &str| house.run_with_input(&["run", "--model", "script/echo", given], input).ok().stdout;
    assert_eq!(said("from the line", ""), "from the line\n");
    assert_eq!(said("@prompt.txt", ""), "from a file\n");
    assert_eq!(said("-", "from standard input"), "from standard input\n");
    let missing = house.run(&["run", "@nope.txt"]).fails(2);
    assert!(missing.starts_with("error: cannot read the prompt from nope.txt\n"), "{missing}");
    for empty in ["", "  ", "-"] {
        let error = house.run(&["run", empty]).fails(2);
        assert_eq!(error, "error: the prompt is empty\n  fix:   tenure run \"what to do\"\n");
    }
}

#[test]
fn an_answer_on_a_terminal_comes_in_pieces_and_only_once() {
    let scenario = "[[turn]]\ndo = [{ say = \"one two three\", pieces = 3, delay_ms = 5 }]\n";
    let house = House::dev().scenario("slow", scenario);
    let shown = on_a_terminal(house.command(&["run", "--model", "script/slow", "go"]));
    let shown = String::from_utf8(shown).unwrap();
    assert_eq!(shown.matches("one two three").count(), 1, "{shown:?}");
    assert!(shown.contains("\r\none two three\r\ndone in "), "{shown:?}");
}

#[test]
fn a_folder_is_put_into_the_workspace_without_what_its_ignore_file_names() {
    let scenario = "[[turn]]\ndo = [{ call = \"bash\", input = { command = \"cat src/main.txt; ls -A; sh run.sh\" } }]\n[[turn]]\ndo = [{ say = \"{{result}}\" }]\n";
    let house = House::dev().scenario("look", scenario);
    house.write("project/src/main.txt", "content\n");
    house.write("project/run.sh", "echo it runs\n");
    house.write("project/target/big.bin", vec![0; 100_000]);
    house.write("project/.env", "SECRET=1\n");
    house.write("project/.tenureignore", "target/\n.env\n");
    std::os::unix::fs::symlink("/etc/passwd", house.path("project/outside")).unwrap();
    let ran = house.run(&["run", "--dir", "project", "--model", "script/look", "go"]).ok();
    assert!(ran.stdout.starts_with("content\n") && ran.stdout.contains("it runs"), "{ran:?}");
    assert!(!ran.stdout.contains("target") && !ran.stdout.contains(".env\n"), "{ran:?}");
    assert!(ran.stderr.contains("warning: left out outside: "), "what cannot come along is named: {ran:?}");
    assert!(ran.stderr.contains("project is in the workspace: "), "{ran:?}");
    let missing = house.run(&["run", "--dir", "nowhere", "--model", "script/look", "go"]);
    assert_eq!(missing.code, 1, "{missing:?}");
    assert!(missing.stderr.contains("cannot put nowhere into …"), "{missing:?}");
}

#[test]
fn a_repeat_with_the_same_key_does_not_send_the_folder_again() {
    let scenario = "[[turn]]\ndo = [{ call = \"bash\", input = { command = \"echo changed > a.txt\" } }]\n[[turn]]\ndo = [{ say = \"done\" }]\n";
    let house = House::dev().scenario("change", scenario);
    house.write("project/a.txt", "as it was\n");
    let run = ["run", "--dir", "project", "--model", "script/change", "--key", "k", "go"];
    house.run(&run).ok();
    let again = house.run(&run).ok();
    assert_eq!(again.stdout, "done\n", "the repeat follows the same session");
    let sessions = house.run(&["ps", "--json"]).ok().json();
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0]["title"], "go");
    let file = format!("{}:a.txt", sessions[0]["id"].as_str().unwrap());
    assert_eq!(house.run(&["cat", &file]).ok().stdout, "changed\n");
}

#[test]
fn a_budget_is_part_of_the_session() {
    let house = House::dev();
    let ran = house.run(&["run", "--model", "script/echo", "--budget", "2.5", "hello"]).ok();
    assert!(ran.stderr.contains("$0.00 of $2.50."), "{ran:?}");
    assert_eq!(house.run(&["ps", "--json"]).ok().one()["limits"]["cost_usd"], 2.5);
    let wrong = house.run(&["run", "--budget", "lots", "x"]).fails(2);
    assert!(wrong.contains("'lots'"), "{wrong}");
}

#[test]
fn ctrl_c_detaches_and_the_session_goes_on() {
    let scenario = "[[turn]]\ndo = [{ call = \"bash\", input = { command = \"touch started; until [ -e go ]; do sleep 0.05; done\" } }]\n[[turn]]\ndo = [{ say = \"done\" }]\n";
    let house = House::dev().scenario("held", scenario);
    let mut run = house.start(&["run", "--json", "--model", "script/held", "go"]);
    let session: Value = serde_json::from_str(&run.line().unwrap()).unwrap();
    let session = session["id"].as_str().unwrap().to_owned();
    house.until_file(&session, "started");
    run.signal(rustix::process::Signal::INT);
    assert_eq!(run.code(), 0);
    std::fs::write(house.in_workspace(&session, "go"), "").unwrap();
    let events = house.until_idle(&session);
    assert!(events.iter().any(|event| event["content"][0]["text"] == "done"));
}

#[test]
fn a_model_that_nobody_knows_is_refused_before_a_session_is_made() {
    let house = House::dev();
    let error = house.run(&["run", "--model", "nobody/nothing", "x"]).fails(2);
    assert!(error.contains("nobody") && error.contains("code: "), "{error}");
    assert_eq!(house.run(&["ps", "--json"]).ok().stdout, "");
    let none = house.run(&["run", "x"]).fails(2);
    assert!(none.contains("model") && none.contains("fix:"), "{none}");
}
