//! ls, cat, cp.

use crate::house::{House, finish, redacted};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// A session with some files.
fn with_files() -> (House, String) {
    let house = House::dev();
    let session = house.detached("script/echo", "hello");
    house.until_idle(&session);
    house.write("local/a.txt", "alpha\n");
    house.write("local/deep/b.sh", "echo b\n");
    fs::set_permissions(house.path("local/deep/b.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let copied = house.run(&["cp", "local", &format!("{session}:")]).ok();
    assert!(copied.stdout.is_empty() && copied.stderr.starts_with("copied "), "{copied:?}");
    (house, session)
}

#[test]
fn a_folder_goes_in_is_listed_and_comes_out_again() {
    let (house, session) = with_files();
    assert_eq!(house.run(&["ls", &session]).ok().stdout, "a.txt\ndeep/\n");
    assert_eq!(house.run(&["ls", &format!("{session}:deep")]).ok().stdout, "b.sh\n");
    let long = house.run(&["ls", "-l", &format!("{session}:deep")]).ok().stdout;
    assert!(long.starts_with("0755  7 B  ") && long.ends_with("b.sh\n"), "{long}");
    let json = house.run(&["ls", &session, "--json"]).ok().json();
    assert_eq!(json.iter().map(|entry| entry["name"].as_str().unwrap()).collect::<Vec<_>>(), ["a.txt", "deep"]);
    let tail = &session[session.len() - 6..];
    house.run(&["cp", &format!("{tail}:"), "back"]).ok();
    assert_eq!(fs::read_to_string(house.path("back/a.txt")).unwrap(), "alpha\n");
    assert_eq!(fs::metadata(house.path("back/deep/b.sh")).unwrap().permissions().mode() & 0o777, 0o755);
}

#[test]
fn one_file_goes_in_and_comes_out() {
    let (house, session) = with_files();
    house.run(&["cp", "local/a.txt", &format!("{session}:new/name.txt")]).ok();
    let place = format!("{session}:new/name.txt");
    assert_eq!(house.run(&["cat", &place]).ok().stdout, "alpha\n");
    let copied = house.run(&["cp", &place, ".", "--json"]).ok().one();
    assert_eq!(copied["size_bytes"], 6);
    assert_eq!(fs::read_to_string(house.path("name.txt")).unwrap(), "alpha\n");
}

#[test]
fn what_is_not_there_or_not_meant_is_said() {
    let (house, session) = with_files();
    for (given, code, expected) in [
        (&["cat", &format!("{session}:nope.txt")][..], 3, "error: cannot read "),
        (&["ls", &format!("{session}:nope")], 3, "error: cannot list "),
        (&["cp", &format!("{session}:nope"), "x"], 3, "error: cannot copy "),
        (&["cp", "a", "b"], 2, "error: one side must be SESSION:PATH"),
        (&["cat", &session], 2, "names no file"),
        (&["cp", "nope", &format!("{session}:x")], 1, "No such file"),
    ] {
        let error = house.run(given).fails(code);
        assert!(error.contains(expected), "{given:?}: {}", redacted(&error, &[&session]));
    }
    let outside = house.run(&["cat", &format!("{session}:../../api.key")]);
    assert!(outside.code != 0 && outside.stdout.is_empty(), "{outside:?}");
}

#[test]
fn a_name_that_is_not_text_is_listed_inertly_and_comes_out_unharmed() {
    use std::os::unix::ffi::OsStrExt;
    let (house, session) = with_files();
    let name = std::ffi::OsStr::from_bytes(b"n\xff\x1b[2J");
    fs::create_dir(house.path("odd")).unwrap();
    fs::write(house.path("odd").join(name), "odd\n").unwrap();
    house.run(&["cp", "odd", &format!("{session}:odd")]).ok();
    let listed = house.run(&["ls", &format!("{session}:odd")]).ok().stdout;
    assert!(!listed.contains('\u{1b}') && listed.contains("␛[2J"), "{listed:?}");
    house.run(&["cp", &format!("{session}:odd"), "back"]).ok();
    assert_eq!(fs::read(house.path("back").join(name)).unwrap(), b"odd\n");
}

#[test]
fn a_broken_download_leaves_no_half_file() {
    let (house, session) = with_files();
    fs::create_dir(house.path("closed")).unwrap();
    let mut command = house.command(&["cp", &format!("{session}:a.txt"), "closed/missing/a.txt"]);
    command.env("HOME", "/");
    let error = finish(command).fails(1);
    assert!(error.starts_with("error: cannot copy "), "{error}");
    assert_eq!(fs::read_dir(house.path("closed")).unwrap().count(), 0);
}
