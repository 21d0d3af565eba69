//! Archives that want to be large, and trees that do not want to go.

use crate::house;
use std::io::{Cursor, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use tenure_files::{ImportLimits, Kind};

/// A tar with one entry, whose content is made while it is read.
fn one_entry(kind: tar::EntryType, name: &str, size: u64, change: impl FnOnce(&mut tar::Header)) -> impl Read {
    let mut header = tar::Header::new_gnu();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(size);
    change(&mut header);
    header.set_cksum();
    Cursor::new(header.as_bytes().to_vec()).chain(std::io::repeat(b'x').take(size.next_multiple_of(512)))
}

#[test]
fn z_42_a_name_of_gigabytes_is_refused_before_it_is_read() {
    for kind in [tar::EntryType::GNULongName, tar::EntryType::GNULongLink, tar::EntryType::XHeader] {
        let (_top, workspace) = house();
        let mut archive = one_entry(kind, "././@LongLink", 8 << 30, |_| {});
        let error = workspace.import_tar(b"", &mut archive, ImportLimits::default()).unwrap_err();
        assert_eq!(error.kind, Kind::TooLarge, "{}", error.message);
        assert!(error.message.contains("longer than 1048576 bytes"), "{}", error.message);
    }
}

#[test]
fn z_42_a_sparse_file_cannot_be_a_million_times_its_archive() {
    const REAL: u64 = 4 << 30;
    let (_top, workspace) = house();
    let mut archive = one_entry(tar::EntryType::GNUSparse, "sparse", 512, |header| {
        let gnu = header.as_gnu_mut().unwrap();
        gnu.set_real_size(REAL);
        gnu.sparse[0].set_offset(REAL - 512);
        gnu.sparse[0].set_length(512);
    });
    let limits = ImportLimits { bytes: u64::MAX, ..ImportLimits::default() };
    let error = workspace.import_tar(b"", &mut archive, limits).unwrap_err();
    assert_eq!(error.kind, Kind::TooLarge, "{}", error.message);
    assert!(error.message.contains("more than 1000 times its size"), "{}", error.message);
    assert_eq!(workspace.usage(10).unwrap(), (0, 0), "nothing stays");
}

#[test]
fn z_42_bytes_and_depth_are_bounded() {
    let (_top, workspace) = house();
    let limits = ImportLimits { bytes: 1_000, depth: 3, ..ImportLimits::default() };
    let mut large = one_entry(tar::EntryType::Regular, "large", 1_001, |_| {});
    assert_eq!(workspace.import_tar(b"", &mut large, limits).unwrap_err().kind, Kind::TooLarge);
    let mut deep = one_entry(tar::EntryType::Regular, "a/b/c/d", 0, |_| {});
    assert_eq!(workspace.import_tar(b"", &mut deep, limits).unwrap_err().kind, Kind::TooLarge);
    // The place in the workspace counts too.
    let mut deep = one_entry(tar::EntryType::Regular, "c/d", 0, |_| {});
    assert_eq!(workspace.import_tar(b"a/b", &mut deep, limits).unwrap_err().kind, Kind::TooLarge);
}

#[test]
fn z_42_hard_links_cost_no_space_and_do_not_go_through_symbolic_ones() {
    let (top, workspace) = house();
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(1_000);
    header.set_mode(0o644);
    builder.append_data(&mut header, "file", std::io::repeat(b'x').take(1_000)).unwrap();
    for number in 0..100 {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Link);
        header.set_size(0);
        builder.append_link(&mut header, format!("copy/{number}"), "file").unwrap();
    }
    let archive = builder.into_inner().unwrap();
    let limits = ImportLimits { bytes: 1_000, ..ImportLimits::default() };
    // Twice: the second time every name is there already.
    for _ in 0..2 {
        let imported = workspace.import_tar(b"", &mut Cursor::new(&archive), limits).unwrap();
        assert_eq!((imported.entries, imported.bytes), (101, 1_000));
    }
    let root = top.path().join("workspace");
    assert_eq!(std::fs::metadata(root.join("file")).unwrap().nlink(), 101);
    assert_eq!(workspace.usage(1_000).unwrap().0, 102, "no draft stays");

    symlink(top.path().join("outside"), root.join("leak")).unwrap();
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Link);
    header.set_size(0);
    let mut builder = tar::Builder::new(Vec::new());
    builder.append_link(&mut header, "taken", "leak").unwrap();
    let error = workspace.import_tar(b"", &mut Cursor::new(builder.into_inner().unwrap()), limits).unwrap_err();
    assert_eq!(error.kind, Kind::NotAFile);
}

#[test]
fn o_080_a_tree_goes_with_closed_folders_and_links_but_nothing_beside_it() {
    let (top, workspace) = house();
    let root = top.path().join("workspace");
    std::fs::create_dir_all(root.join("tree/closed/inner/more")).unwrap();
    std::fs::write(root.join("tree/closed/inner/file"), "x").unwrap();
    std::fs::write(root.join("beside"), "stays").unwrap();
    symlink("../beside", root.join("tree/link")).unwrap();
    symlink(top.path(), root.join("tree/out")).unwrap();
    for (path, mode) in [("tree/closed/inner/file", 0o400), ("tree/closed/inner", 0o000), ("tree/closed", 0o500)] {
        std::fs::set_permissions(root.join(path), PermissionsExt::from_mode(mode)).unwrap();
    }
    workspace.remove_all(b"tree").unwrap();
    assert_eq!(workspace.list(b"", None, 10).unwrap().0.len(), 1);
    assert_eq!(std::fs::read_to_string(root.join("beside")).unwrap(), "stays");
    assert_eq!(std::fs::read_to_string(top.path().join("outside")).unwrap(), "secret");
    assert_eq!(workspace.remove_all(b"tree").unwrap_err().kind, Kind::NotFound);
    assert_eq!(workspace.remove_all(b"").unwrap_err().kind, Kind::Invalid);
    assert!(workspace.remove_all(b"../outside").is_err());
    workspace.remove_all(b"beside").unwrap();
}

#[test]
fn a_tree_deeper_than_any_path_goes() {
    use rustix::fs::{Mode, OFlags, mkdirat, openat};
    let (top, workspace) = house();
    let open = |parent: &rustix::fd::OwnedFd, name: &str| {
        openat(parent, name, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap()
    };
    let root = std::fs::File::open(top.path().join("workspace")).unwrap();
    let mut current: rustix::fd::OwnedFd = root.into();
    for _ in 0..3_000 {
        mkdirat(&current, "deep", Mode::from_raw_mode(0o755)).unwrap();
        mkdirat(&current, "wide", Mode::from_raw_mode(0o755)).unwrap();
        current = open(&current, "deep");
    }
    workspace.remove_all(b"deep").unwrap();
    workspace.remove_all(b"wide").unwrap();
    assert_eq!(workspace.usage(10).unwrap(), (0, 0));
}
