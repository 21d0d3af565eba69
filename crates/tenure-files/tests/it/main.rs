//! The workspace against hostile content.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod bombs;
mod pack;
mod snapshots;

use std::io::Cursor;
use std::os::unix::fs::symlink;
use tenure_files::{EntryKind, ImportLimits, Kind, Workspace};

fn house() -> (tempfile::TempDir, Workspace) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("outside"), "secret").unwrap();
    let workspace = Workspace::open(&folder.path().join("workspace")).unwrap();
    (folder, workspace)
}

fn write(workspace: &Workspace, path: &[u8], text: &str) {
    workspace.write(path, &mut Cursor::new(text.as_bytes()), 0o644, 1_000).unwrap();
}

#[test]
fn what_is_written_is_listed_and_read() {
    let (_folder, workspace) = house();
    write(&workspace, b"a/b/c.txt", "hello");
    write(&workspace, b"/workspace/a/z", "");
    let (entries, more) = workspace.list(b"a", None, 10).unwrap();
    assert_eq!(
        entries.iter().map(|entry| (entry.name.as_slice(), entry.kind)).collect::<Vec<_>>(),
        [(&b"b"[..], EntryKind::Directory), (b"z", EntryKind::File)]
    );
    assert!(!more);
    assert_eq!(workspace.read_range(b"a/b/c.txt", 1, 3).unwrap(), b"ell");
    let (page, more) = workspace.list(b"a", Some(b"b"), 1).unwrap();
    assert_eq!((page.len(), more), (1, false));
    workspace.remove(b"a/z").unwrap();
    assert_eq!(workspace.stat(b"a/z").unwrap_err().kind, Kind::NotFound);
}

#[test]
fn o_070_no_link_leads_out() {
    let (folder, workspace) = house();
    let root = folder.path().join("workspace");
    symlink(folder.path().join("outside"), root.join("absolute")).unwrap();
    symlink("../outside", root.join("relative")).unwrap();
    symlink("..", root.join("up")).unwrap();
    symlink("/proc/self/root", root.join("magic")).unwrap();
    assert_eq!(workspace.stat(b"relative").unwrap().target.as_deref(), Some(&b"../outside"[..]));
    for path in [&b"absolute"[..], b"relative", b"up/outside", b"magic/etc/passwd"] {
        assert_eq!(workspace.open_read(path).unwrap_err().kind, Kind::Escapes, "{}", String::from_utf8_lossy(path));
        assert!(
            workspace.write(path, &mut Cursor::new(b"x"), 0o644, 10).is_err()
                || !std::fs::read(folder.path().join("outside")).unwrap().starts_with(b"x")
        );
    }
    assert_eq!(std::fs::read_to_string(folder.path().join("outside")).unwrap(), "secret");
}

fn archive(entries: &[(&str, tar::EntryType, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, kind, target) in entries {
        let mut header = tar::Header::new_gnu();
        // Names that the builder refuses are written by hand.
        let bytes = header.as_old_mut();
        bytes.name[..name.len()].copy_from_slice(name.as_bytes());
        bytes.linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(0o644);
        header.set_size(0);
        header.set_cksum();
        builder.append(&header, std::io::empty()).unwrap();
    }
    builder.into_inner().unwrap()
}

#[test]
fn o_070_z_42_hostile_archives_are_refused() {
    use tar::EntryType::{Block, Link, Regular, Symlink};
    for (entries, kind) in [
        (vec![("../x", Regular, "")], Kind::Escapes),
        (vec![("/abs", Regular, "")], Kind::Escapes),
        (vec![("a/../../x", Regular, "")], Kind::Escapes),
        (vec![("leak", Symlink, "/etc/passwd")], Kind::Escapes),
        (vec![("leak", Symlink, "../../x")], Kind::Escapes),
        (vec![("hard", Link, "../outside")], Kind::Escapes),
    ] {
        let (folder, workspace) = house();
        let error =
            workspace.import_tar(b"", &mut Cursor::new(archive(&entries)), ImportLimits::default()).unwrap_err();
        assert_eq!(error.kind, kind, "{entries:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "nothing appeared outside");
    }
    let (_folder, workspace) = house();
    let skipped =
        workspace.import_tar(b"", &mut Cursor::new(archive(&[("dev", Block, "")])), ImportLimits::default()).unwrap();
    assert_eq!(skipped.skipped, 1);
    // A link inside the archive is made last: nothing is written through it.
    let entries = [("d", Symlink, "/"), ("d/x", Regular, "")];
    assert!(workspace.import_tar(b"", &mut Cursor::new(archive(&entries)), ImportLimits::default()).is_err());
    assert!(!std::path::Path::new("/x").exists());
    let few = ImportLimits { entries: 1, ..ImportLimits::default() };
    let error = workspace
        .import_tar(b"", &mut Cursor::new(archive(&[("a", Regular, ""), ("b", Regular, "")])), few)
        .unwrap_err();
    assert_eq!(error.kind, Kind::TooLarge);
}

#[test]
fn o_074_names_are_bytes_and_survive_an_archive() {
    let (_folder, workspace) = house();
    let names: [&[u8]; 6] = [b"bad\xffname", b"new\nline", b"-rf", b"[x]", b"a:b", b"\x1b[2J"];
    for name in names {
        write(&workspace, name, "x");
    }
    let mut tar = Vec::new();
    workspace.export_tar(b"", &mut tar).unwrap();
    let (_other, copy) = house();
    copy.import_tar(b"", &mut Cursor::new(tar), ImportLimits::default()).unwrap();
    for name in names {
        assert_eq!(copy.read_range(name, 0, 10).unwrap(), b"x");
    }
}

#[test]
fn a_fifo_does_not_hang_a_reader() {
    let (folder, workspace) = house();
    let path = folder.path().join("workspace/pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600), 0)
        .unwrap();
    assert_eq!(workspace.open_read(b"pipe").unwrap_err().kind, Kind::NotAFile);
}

#[test]
fn a_write_beyond_its_limit_leaves_the_old_file() {
    let (_folder, workspace) = house();
    write(&workspace, b"a", "old");
    let error = workspace.write(b"a", &mut Cursor::new(vec![0; 100]), 0o644, 10).unwrap_err();
    assert_eq!(error.kind, Kind::TooLarge);
    assert_eq!(workspace.read_range(b"a", 0, 10).unwrap(), b"old");
    assert_eq!(workspace.list(b"", None, 10).unwrap().0.len(), 1, "no draft stays");
}

#[test]
fn an_archive_of_a_folder_larger_than_one_page_is_complete() {
    let (folder, workspace) = house();
    let count = tenure_files::MAX_LIST + 1;
    for number in 0..count {
        std::fs::write(folder.path().join("workspace").join(format!("{number}")), "").unwrap();
    }
    let mut tar = Vec::new();
    workspace.export_tar(b"", &mut tar).unwrap();
    assert_eq!(tar::Archive::new(Cursor::new(tar)).entries().unwrap().count(), count);
    assert_eq!(workspace.usage(usize::MAX).unwrap().0, count as u64);
}
