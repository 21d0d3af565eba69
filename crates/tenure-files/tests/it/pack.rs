//! Folders of the host on their way into a workspace.

use crate::house;
use std::io::Cursor;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use tenure_files::{EntryKind, ImportLimits, Kind, PackLimits, Progress, pack};

fn fill(folder: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

fn packed_names(folder: &Path) -> Vec<String> {
    let mut tar = Vec::new();
    pack(folder, &mut tar, PackLimits::default(), |_| {}).unwrap();
    let mut archive = tar::Archive::new(Cursor::new(tar));
    archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string()).collect()
}

#[test]
fn ignore_files_of_every_folder_are_honoured_and_git_files_come_along() {
    let folder = tempfile::tempdir().unwrap();
    fill(
        folder.path(),
        &[
            (".tenureignore", "# a comment\ntarget/\n*.log\n!keep.log\n/only-here\n"),
            (".gitignore", "deps/\n"),
            (".git/config", ""),
            ("a.log", ""),
            ("deps/library", ""),
            ("keep.log", ""),
            ("only-here", ""),
            ("sub/.tenureignore", "private\n"),
            ("sub/only-here", ""),
            ("sub/private", ""),
            ("sub/target/x", ""),
            ("target/debug/x", ""),
        ],
    );
    assert_eq!(
        packed_names(folder.path()),
        [
            ".git",
            ".git/config",
            ".gitignore",
            ".tenureignore",
            "deps",
            "deps/library",
            "keep.log",
            "sub",
            "sub/.tenureignore",
            "sub/only-here"
        ]
    );
}

#[test]
fn links_stay_links_and_those_that_lead_out_are_left_out_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let top = folder.path().canonicalize().unwrap();
    fill(&top, &[("sub/deep/file", "text")]);
    symlink("deep/file", top.join("sub/relative")).unwrap();
    symlink(top.join("sub/deep"), top.join("sub/deep/absolute")).unwrap();
    symlink("/etc/passwd", top.join("sub/outside")).unwrap();
    symlink("../../x", top.join("sub/up")).unwrap();
    symlink("nowhere", top.join("dangling")).unwrap();
    std::os::unix::net::UnixListener::bind(top.join("socket")).unwrap();
    let mut tar = Vec::new();
    let packed = pack(&top, &mut tar, PackLimits::default(), |_| {}).unwrap();
    let left_out: Vec<(&[u8], &str)> =
        packed.left_out.iter().map(|left| (left.path.as_slice(), left.why.as_str())).collect();
    assert_eq!(
        left_out,
        [
            (&b"socket"[..], "it is no file, folder or link"),
            (b"sub/outside", "it is a link to /etc/passwd, which is not in the folder"),
            (b"sub/up", "it is a link to ../../x, which is not in the folder"),
        ]
    );
    let (_folder, workspace) = house();
    workspace.import_tar(b"", &mut Cursor::new(tar), ImportLimits::default()).unwrap();
    let target = |path: &[u8]| workspace.stat(path).unwrap().target.unwrap();
    assert_eq!(target(b"sub/relative"), b"deep/file");
    assert_eq!(target(b"sub/deep/absolute"), b"../../sub/deep");
    assert_eq!(target(b"dangling"), b"nowhere");
    assert_eq!(workspace.read_range(b"sub/deep/absolute/file", 0, 10).unwrap(), b"text");
}

#[test]
fn a_bound_that_is_passed_names_the_largest_folders_before_a_byte_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), &[("a/small", "x"), ("target/large", &"x".repeat(1_000)), ("z", "x")]);
    for limits in
        [PackLimits { bytes: 500, ..PackLimits::default() }, PackLimits { entries: 4, ..PackLimits::default() }]
    {
        let mut tar = Vec::new();
        let error = pack(folder.path(), &mut tar, limits, |_| {}).unwrap_err();
        assert_eq!((error.kind, tar.len()), (Kind::TooLarge, 0));
        assert!(error.message.contains("largest: target (1000 bytes in 2 entries"), "{}", error.message);
        assert!(error.message.contains(".tenureignore"), "{}", error.message);
    }
}

#[test]
fn a_malformed_pattern_and_a_missing_folder_are_said() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), &[(".tenureignore", "fine\n[z-a]\n"), ("file", "")]);
    let error = pack(folder.path(), &mut Vec::new(), PackLimits::default(), |_| {}).unwrap_err();
    assert_eq!(error.kind, Kind::Invalid);
    assert!(error.message.contains("line 2") && error.message.contains("[z-a]"), "{}", error.message);
    let missing = pack(&folder.path().join("missing"), &mut Vec::new(), PackLimits::default(), |_| {});
    assert_eq!(missing.unwrap_err().kind, Kind::NotFound);
    assert!(!folder.path().join("missing").exists(), "looking makes nothing");
    let file = pack(&folder.path().join("file"), &mut Vec::new(), PackLimits::default(), |_| {});
    assert_eq!(file.unwrap_err().kind, Kind::NotADirectory);
}

#[test]
fn progress_only_grows_and_ends_at_the_totals() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), &[("a", &"x".repeat(200_000)), ("b/c", "y")]);
    let mut steps: Vec<Progress> = Vec::new();
    let packed = pack(folder.path(), &mut Vec::new(), PackLimits::default(), |step| steps.push(step)).unwrap();
    assert!(steps.windows(2).all(|pair| pair[0].bytes <= pair[1].bytes && pair[0].entries <= pair[1].entries));
    let end = Progress { entries: 3, bytes: 200_001, total_entries: 3, total_bytes: 200_001 };
    assert_eq!(steps.first(), Some(&Progress { entries: 0, bytes: 0, ..end }));
    assert_eq!(steps.last(), Some(&end));
    assert_eq!((packed.entries, packed.bytes, packed.left_out_count), (3, 200_001, 0));
    assert!(steps.iter().any(|step| step.bytes > 0 && step.bytes < 200_000), "large files report meanwhile");
}

#[test]
fn a_packed_folder_arrives_with_modes_times_empty_folders_and_names_as_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let long = format!("{}/{}/file", "d".repeat(120), "e".repeat(120));
    fill(folder.path(), &[("run.sh", "#!/bin/sh\n"), (&long, "deep"), ("closed/file", "x")]);
    let odd = std::ffi::OsStr::from_bytes(b"bad\xffname");
    std::fs::write(folder.path().join(odd), "odd").unwrap();
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    let set = |path: &str, mode| {
        std::fs::set_permissions(folder.path().join(path), PermissionsExt::from_mode(mode)).unwrap();
    };
    set("run.sh", 0o4755);
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    for path in ["run.sh", "closed"] {
        std::fs::File::open(folder.path().join(path)).unwrap().set_modified(time).unwrap();
    }
    set("closed", 0o555);
    let mut tar = Vec::new();
    pack(folder.path(), &mut tar, PackLimits::default(), |_| {}).unwrap();
    let (_house, workspace) = house();
    workspace.import_tar(b"put/here", &mut Cursor::new(tar), ImportLimits::default()).unwrap();
    let entry = workspace.stat(b"put/here/run.sh").unwrap();
    assert_eq!((entry.mode, entry.modified_ns), (0o755, 1_000_000_000_000_000_000), "without the set-user-id bit");
    let closed = workspace.stat(b"put/here/closed").unwrap();
    assert_eq!((closed.mode, closed.modified_ns), (0o555, 1_000_000_000_000_000_000));
    assert_eq!(workspace.stat(b"put/here/empty").unwrap().kind, EntryKind::Directory);
    assert_eq!(workspace.read_range(b"put/here/bad\xffname", 0, 10).unwrap(), b"odd");
    assert_eq!(workspace.read_range(format!("put/here/{long}").as_bytes(), 0, 10).unwrap(), b"deep");
}

#[test]
fn what_is_imported_belongs_to_the_owner_of_the_workspace() {
    const OWNER: u32 = 12_345;
    let (top, workspace) = house();
    let root = top.path().join("workspace");
    if std::os::unix::fs::chown(&root, Some(OWNER), Some(OWNER)).is_err() {
        eprintln!("left out: only root can give files away");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), &[("sub/file", "x")]);
    symlink("file", folder.path().join("sub/link")).unwrap();
    std::fs::hard_link(folder.path().join("sub/file"), folder.path().join("sub/other")).unwrap();
    let mut tar = Vec::new();
    pack(folder.path(), &mut tar, PackLimits::default(), |_| {}).unwrap();
    workspace.import_tar(b"", &mut Cursor::new(tar), ImportLimits::default()).unwrap();
    for path in ["sub", "sub/file", "sub/link", "sub/other"] {
        let metadata = std::fs::symlink_metadata(root.join(path)).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (OWNER, OWNER), "{path}");
    }
}
