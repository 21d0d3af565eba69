//! Everything that a folder can hold comes back as it was.

use super::house::{House, describe, open, plan};
use rustix::fs::{CWD, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use tenure_files::snapshots::{Consistency, Id, Reason, RestoreLimits};

fn set_mode(path: &std::path::Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn set_time(path: &std::path::Path, seconds: i64, nanos: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanos };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

#[test]
fn o_072_metadata_fidelity() {
    let mut house = House::new();
    for (name, mode) in [("setuid", 0o4755), ("setgid", 0o2711), ("sticky", 0o1644), ("closed", 0o000)] {
        house.write(name, name);
        set_mode(&house.path(name), mode);
    }
    for (name, mode) in [("empty/inner", 0o755), ("closed folder", 0o000), ("shared", 0o3777)] {
        fs::create_dir_all(house.path(name)).unwrap();
        set_mode(&house.path(name), mode);
    }
    house.write("one", vec![7; 300_000]);
    fs::create_dir(house.path("z")).unwrap();
    fs::hard_link(house.path("one"), house.path("z/two")).unwrap();
    fs::hard_link(house.path("one"), house.path("a third")).unwrap();
    symlink("nowhere/at all", house.path("dangling")).unwrap();
    set_time(&house.path("dangling"), 1_000_000_000, 1);
    house.write("nothing", "");
    house.write("old", "x");
    set_time(&house.path("old"), -1, 999_999_999);
    rustix::fs::mknodat(CWD, house.path("pipe"), rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o622), 0).unwrap();
    set_mode(&house.path("pipe"), 0o622);
    let value = XattrFlags::empty();
    rustix::fs::setxattr(house.path("one"), "user.colour", b"blue\0green", value).unwrap();
    rustix::fs::setxattr(house.path("shared"), "user.empty", b"", value).unwrap();
    if rustix::process::geteuid().is_root() {
        house.write("of another", "1234");
        rustix::fs::chown(house.path("of another"), Some(Uid::from_raw(1234)), Some(Gid::from_raw(4321))).unwrap();
        set_mode(&house.path("of another"), 0o4750);
    }
    let sparse = fs::File::create(house.path("sparse")).unwrap();
    sparse.set_len(1 << 30).unwrap();
    sparse.write_all_at(b"in the middle", 500_000_000).unwrap();
    drop(sparse);
    fs::File::create(house.path("one hole")).unwrap().set_len(50_000_000).unwrap();
    set_time(&house.path("empty"), 1_234_567_890, 123_456_789);
    // The description reads whole files: the sparse one is compared by its parts.
    let is_small = |path: &std::path::Path| fs::metadata(path).unwrap().blocks() * 512 < 1_000_000;
    assert!(is_small(&house.path("sparse")), "the file system keeps holes");

    let taken = house.take(None);
    assert_eq!(taken.cache.record().consistency, Consistency::Fuzzy);
    let id = taken.cache.record().id;
    let target = house.folder.path().join("target");
    fs::create_dir(&target).unwrap();
    fs::write(target.join("left over"), "goes away").unwrap();
    house.snapshots.restore(id, &target, RestoreLimits::default()).unwrap();
    assert!(!target.join("left over").exists());
    for name in ["sparse", "one hole"] {
        assert!(is_small(&target.join(name)), "{name} has become large");
        assert_eq!(fs::metadata(target.join(name)).unwrap().len(), fs::metadata(house.path(name)).unwrap().len());
    }
    let mut middle = [0; 15];
    fs::File::open(target.join("sparse")).unwrap().read_exact_at(&mut middle, 499_999_999).unwrap();
    assert_eq!(&middle, b"\0in the middle\0");
    for folder in [&target, &house.workspace()] {
        fs::remove_file(folder.join("sparse")).unwrap();
        set_time(folder, 1, 1);
    }
    assert_eq!(describe(&target), describe(&house.workspace()));
    assert_eq!(fs::metadata(target.join("a third")).unwrap().nlink(), 3);
}

#[test]
fn o_073_sparse_file_of_4_7_gb_is_accepted_and_equal() {
    let mut house = House::new();
    let size = 4_700_000_000;
    let file = fs::File::create(house.path("database")).unwrap();
    file.set_len(size).unwrap();
    file.write_all_at(b"first", 0).unwrap();
    file.write_all_at(b"last", size - 4).unwrap();
    let id = house.take(None).cache.record().id;
    let target = house.folder.path().join("target");
    house.snapshots.restore(id, &target, RestoreLimits::default()).unwrap();
    let restored = fs::File::open(target.join("database")).unwrap();
    assert_eq!(restored.metadata().unwrap().len(), size);
    assert!(restored.metadata().unwrap().blocks() < 1_000);
    let mut ends = [[0; 5]; 2];
    restored.read_exact_at(&mut ends[0], 0).unwrap();
    restored.read_exact_at(&mut ends[1], size - 5).unwrap();
    assert_eq!(ends, [*b"first", *b"\0last"]);
}

#[test]
fn o_074_file_names_are_bytes() {
    let mut house = House::new();
    let long = vec![b'n'; 255];
    let names: [&[u8]; 11] = [
        b"bad\xffname",
        b"new\nline",
        b"-rf",
        &long,
        b"[x]",
        b"a:b",
        "\u{e9}".as_bytes(),
        "e\u{301}".as_bytes(),
        b"A",
        b"a",
        b"\x1b[2J",
    ];
    for name in names {
        fs::write(house.workspace().join(OsStr::from_bytes(name)), name).unwrap();
    }
    let id = house.take(None).cache.record().id;
    assert_eq!(house.restored(id), describe(&house.workspace()));
    let (entries, more) = house.snapshots.list(id, b"", None, 100).unwrap();
    let mut sorted: Vec<Vec<u8>> = names.map(<[u8]>::to_vec).into();
    sorted.sort();
    assert_eq!(entries.into_iter().map(|entry| entry.name).collect::<Vec<_>>(), sorted);
    assert!(!more);
    for name in names {
        let mut file = house.snapshots.open_file(id, name).unwrap();
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut file, &mut bytes).unwrap();
        assert_eq!(bytes, name);
    }
}

#[test]
fn o_080_what_its_owner_may_not_read_or_write_is_taken_restored_and_replaced() {
    let mut house = House::new();
    house.write("deep/er/file", "content");
    set_mode(&house.path("deep/er/file"), 0o400);
    set_mode(&house.path("deep/er"), 0o500);
    set_mode(&house.path("deep"), 0o000);
    let id = house.take(None).cache.record().id;
    assert_eq!(fs::metadata(house.path("deep")).unwrap().mode() & 0o777, 0, "the mode was put back");
    let workspace = house.workspace();
    for _ in 0..2 {
        house.snapshots.restore(id, &workspace, RestoreLimits::default()).unwrap();
    }
    set_mode(&house.path("deep"), 0o700);
    assert_eq!(fs::read(house.path("deep/er/file")).unwrap(), b"content");
    assert_eq!(fs::metadata(house.path("deep/er")).unwrap().mode() & 0o777, 0o500);
}

#[test]
fn sockets_are_left_out_and_listed() {
    let mut house = House::new();
    house.write("file", "x");
    let _socket = UnixListener::bind(house.path("socket")).unwrap();
    let taken = house.take(None);
    let record = taken.cache.record();
    assert_eq!(record.left_out, [(b"socket".to_vec(), Reason::Socket)]);
    assert_eq!(house.restored(record.id).len(), 2);
}

#[test]
fn o_071_deleted_files_stay_deleted_and_files_become_folders_and_back() {
    let mut house = House::new();
    house.write("kept", "1");
    house.write("gone", "2");
    house.write("folder/inner/file", "3");
    house.write("becomes a folder", "4");
    house.write("becomes a file/x", "5");
    let first = house.take(None);
    let first_id = first.cache.record().id;
    let before = describe(&house.workspace());
    fs::remove_file(house.path("gone")).unwrap();
    fs::remove_dir_all(house.path("folder")).unwrap();
    fs::remove_file(house.path("becomes a folder")).unwrap();
    house.write("becomes a folder/y", "6");
    fs::remove_dir_all(house.path("becomes a file")).unwrap();
    house.write("becomes a file", "7");
    let second = house.take(Some(first.cache));
    assert_eq!(house.restored(second.cache.record().id), describe(&house.workspace()));
    assert_eq!(house.restored(first_id), before);
    let (changes, _) = house.snapshots.diff(Some(first_id), second.cache.record().id, b"").unwrap();
    let shown: Vec<_> =
        changes.iter().map(|change| format!("{:?} {}", change.kind, String::from_utf8_lossy(&change.path))).collect();
    let expected = [
        "Changed becomes a file",
        "Removed becomes a file/x",
        "Changed becomes a folder",
        "Added becomes a folder/y",
        "Removed folder",
        "Removed folder/inner",
        "Removed folder/inner/file",
        "Removed gone",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn o_068_files_of_every_resume_are_there_on_the_next_ones() {
    let mut house = House::new();
    let mut newest: Option<Id> = None;
    for round in 0..5 {
        if let Some(id) = newest {
            house.snapshots.restore(id, &house.workspace(), RestoreLimits::default()).unwrap();
        }
        for earlier in 0..round {
            assert_eq!(fs::read(house.path(&format!("of round {earlier}"))).unwrap(), [earlier; 700]);
        }
        house.write(&format!("of round {round}"), [round; 700]);
        let plan = tenure_files::snapshots::Plan { parent: newest, ..house.plan() };
        let taken = house.snapshots.take(&house.workspace(), None, &plan).unwrap();
        newest = Some(taken.cache.record().id);
        fs::remove_dir_all(house.workspace()).unwrap();
    }
}

#[test]
fn an_encrypted_snapshot_comes_back_and_its_content_is_nowhere_to_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let workspace = folder.path().join("workspace");
    fs::create_dir(&workspace).unwrap();
    let secret = b"nobody may read this, however long they look at it";
    fs::write(workspace.join("secret name"), secret).unwrap();
    fs::write(workspace.join("long"), secret.repeat(20_000)).unwrap();
    let key = [7; 32];
    let snapshots = open(folder.path(), Some(&key)).unwrap();
    snapshots.take(&workspace, None, &plan(1)).unwrap();
    let target = folder.path().join("target");
    open(folder.path(), Some(&key)).unwrap().restore(Id(1), &target, RestoreLimits::default()).unwrap();
    assert_eq!(describe(&target), describe(&workspace));
    for stored in walk(&folder.path().join("snapshots")) {
        let bytes = fs::read(&stored).unwrap();
        for part in [&secret[..12], b"secret name"] {
            assert!(!bytes.windows(part.len()).any(|window| window == part), "{stored:?}");
        }
    }
}

pub(super) fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(walk(&path)) } else { files.push(path) }
    }
    files.sort();
    files
}

#[test]
fn a_range_of_a_stored_file_is_read_from_any_place() {
    let mut house = House::new();
    let content: Vec<u8> =
        (0..3_000_000u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    house.write("large", &content);
    let file = fs::File::create(house.path("holes")).unwrap();
    file.set_len(3_000_000).unwrap();
    file.write_all_at(&content[..100], 1_000_000).unwrap();
    let holes = fs::read(house.path("holes")).unwrap();
    let id = house.take(None).cache.record().id;
    for (name, content) in [("large", &content), ("holes", &holes)] {
        for (start, len) in [(0, 10), (999_990, 200), (content.len() - 5, 100), (262_143, 3)] {
            let mut file = house.snapshots.open_file(id, name.as_bytes()).unwrap();
            file.seek(start as u64);
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut std::io::Read::take(file, len), &mut bytes).unwrap();
            let end = content.len().min(start + usize::try_from(len).unwrap());
            assert!(bytes == content[start..end], "{name} from {start}");
        }
    }
}
