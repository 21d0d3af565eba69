//! File operations with the view of commands.

use tenure_sandbox::{ErrorKind, FileOp, FileReply};

use crate::machine::{Folders, drivers, output};

fn read(path: &str) -> FileOp {
    FileOp::Read { path: path.to_owned(), offset: 0, limit: 1 << 20 }
}

#[tokio::test]
async fn files_are_written_read_edited_and_found() {
    for driver in drivers().await {
        let folders = Folders::new();
        let sandbox = driver.start(folders.spec()).await.expect("start");
        let write = |path: &str, text: &str| FileOp::Write { path: path.to_owned(), content: text.as_bytes().to_vec() };
        assert_eq!(
            sandbox.file(write("src/a.rs", "one\ntwo\nthree\n")).await.expect("write"),
            FileReply::Written { created: true }
        );
        assert_eq!(
            sandbox.file(write("/workspace/src/b.rs", "two two\n")).await.expect("write"),
            FileReply::Written { created: true }
        );
        assert_eq!(output(&sandbox, "cat src/a.rs").await, "one\ntwo\nthree\n");
        let lines = FileOp::ReadLines { path: "src/a.rs".to_owned(), first: 2, last: Some(2) };
        let FileReply::Content { bytes, file_bytes, truncated } = sandbox.file(lines).await.expect("read") else {
            panic!("content")
        };
        assert_eq!((bytes.as_slice(), file_bytes, truncated), (&b"two\n"[..], 14, false));
        let edit = |path: &str, old: &str, new: &str, replace_all| FileOp::Edit {
            path: path.to_owned(),
            old: old.to_owned(),
            new: new.to_owned(),
            replace_all,
        };
        assert_eq!(
            sandbox.file(edit("src/a.rs", "two", "2", false)).await.expect("edit"),
            FileReply::Edited { replaced: 1 }
        );
        let error = sandbox.file(edit("src/b.rs", "two", "2", false)).await.expect_err("ambiguous");
        assert_eq!(error.kind, ErrorKind::Refused);
        assert!(error.message.contains("2 times"), "{}", error.message);
        assert_eq!(
            sandbox.file(edit("src/b.rs", "two", "2", true)).await.expect("edit"),
            FileReply::Edited { replaced: 2 }
        );
        let FileReply::Matches { mut lines, .. } =
            sandbox.file(FileOp::Glob { pattern: "**/*.rs".to_owned(), path: None }).await.expect("glob")
        else {
            panic!("matches")
        };
        lines.sort();
        assert_eq!(lines, [b"src/a.rs".to_vec(), b"src/b.rs".to_vec()]);
        let FileReply::Matches { lines, .. } =
            sandbox.file(FileOp::Grep { pattern: "^t.*e$".to_owned(), path: None }).await.expect("grep")
        else {
            panic!("matches")
        };
        assert_eq!(lines, [b"src/a.rs:3:three".to_vec()]);
        assert_eq!(sandbox.file(read("missing")).await.expect_err("missing").kind, ErrorKind::NotFound);
        assert_eq!(sandbox.file(read("src")).await.expect_err("a directory").kind, ErrorKind::Refused);
        sandbox.stop().await;
    }
}

#[tokio::test]
async fn a_fifo_or_a_device_does_not_hang_a_read() {
    for driver in drivers().await {
        let folders = Folders::new();
        let sandbox = driver.start(folders.spec()).await.expect("start");
        output(&sandbox, "mkfifo pipe; ln -s /dev/zero zero; ln -s pipe link").await;
        for path in ["pipe", "zero", "link", "/dev/zero"] {
            let error = sandbox.file(read(path)).await.expect_err("not a regular file");
            assert_eq!(error.kind, ErrorKind::Refused, "{path}: {error}");
        }
        sandbox.stop().await;
    }
}

#[tokio::test]
async fn o_074_names_are_bytes() {
    for driver in drivers().await {
        let folders = Folders::new();
        let sandbox = driver.start(folders.spec()).await.expect("start");
        output(&sandbox, "touch $'bad\\xffname' $'new\\nline' -- -rf '[x]' 'a:b' A a $'esc\\e[2J'").await;
        let FileReply::Matches { mut lines, .. } =
            sandbox.file(FileOp::Glob { pattern: "*".to_owned(), path: None }).await.expect("glob")
        else {
            panic!("matches")
        };
        lines.sort();
        let expected: [&[u8]; 8] = [b"-rf", b"A", b"[x]", b"a", b"a:b", b"bad\xffname", b"esc\x1b[2J", b"new\nline"];
        assert_eq!(lines, expected.map(<[u8]>::to_vec));
        sandbox.stop().await;
    }
}

#[tokio::test]
async fn links_out_of_the_workspace_show_nothing_of_the_host() {
    for driver in drivers().await {
        if driver.name() == "process" {
            continue;
        }
        let folders = Folders::new();
        std::fs::write(folders.path().join("secret"), "sk-live-1").expect("a secret");
        let spec = tenure_sandbox::Spec { hidden: vec![folders.path().join("secret")], ..folders.spec() };
        let sandbox = driver.start(spec).await.expect("start");
        output(&sandbox, &format!("ln -s {} out; ln -s /etc/shadow shadow", folders.path().join("secret").display()))
            .await;
        for path in ["out", "shadow", "../secret", "/etc/shadow"] {
            assert!(sandbox.file(read(path)).await.is_err(), "{path}");
        }
        sandbox.stop().await;
    }
}
