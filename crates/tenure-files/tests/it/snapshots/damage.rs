//! Damaged, missing and foreign things are found, named and never restored in part.

use super::fidelity::walk;
use super::house::{House, describe, open, plan};
use std::fs;
use std::path::PathBuf;
use tenure_files::Kind;
use tenure_files::snapshots::{Id, RestoreLimits};

fn stored(house: &House, part: &str) -> Vec<PathBuf> {
    walk(&house.folder.path().join("snapshots").join(part))
}

#[test]
fn p_17_one_flipped_bit_anywhere_is_found_and_nothing_is_restored() {
    let mut house = House::new();
    house.write("a", vec![b'a'; 3_000]);
    house.write("folder/b", "short");
    let id = house.take(None).cache.record().id;
    let target = house.folder.path().join("target");
    fs::create_dir(&target).unwrap();
    fs::write(target.join("work"), "of today").unwrap();
    let before = describe(&target);
    for path in stored(&house, "records").into_iter().chain(stored(&house, "packs")) {
        let whole = fs::read(&path).unwrap();
        // The directory of a pack serves sharing only: what it says is not needed to restore.
        let end = if path.to_string_lossy().contains("packs") { whole.len() / 3 } else { whole.len() };
        for at in (0..end).step_by(23) {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            fs::write(&path, damaged).unwrap();
            let snapshots = open(house.folder.path(), None).unwrap();
            match snapshots.restore(id, &target, RestoreLimits::default()) {
                Err(error) => {
                    assert!(matches!(error.kind, Kind::Damaged | Kind::Newer), "{at}: {:?} {error}", error.kind);
                    assert_eq!(describe(&target), before);
                    assert!(!snapshots.check(true).unwrap().damages.is_empty());
                }
                Ok(_) => panic!("byte {at} of {path:?} was not missed"),
            }
        }
        fs::write(&path, whole).unwrap();
    }
    house.snapshots.restore(id, &target, RestoreLimits::default()).unwrap();
}

#[test]
fn a_missing_or_cut_pack_is_named_and_other_snapshots_stay_usable() {
    let mut house = House::new();
    house.write("a", vec![b'a'; 3_000]);
    let first = house.take(None);
    let first_id = first.cache.record().id;
    let before = describe(&house.workspace());
    let packs = stored(&house, "packs");
    house.write("b", vec![b'b'; 3_000]);
    let second = house.take(Some(first.cache)).cache.record().id;
    let new = stored(&house, "packs").into_iter().find(|pack| !packs.contains(pack)).unwrap();
    let whole = fs::read(&new).unwrap();
    let damages: [Option<&[u8]>; 2] = [None, Some(&whole[..whole.len() / 2])];
    for damage in damages {
        match damage {
            None => fs::remove_file(&new).unwrap(),
            Some(rest) => fs::write(&new, rest).unwrap(),
        }
        let snapshots = open(house.folder.path(), None).unwrap();
        let target = house.folder.path().join("target");
        let error = snapshots.restore(second, &target, RestoreLimits::default()).unwrap_err();
        assert_eq!(error.kind, Kind::Damaged);
        assert!(!target.exists());
        assert_eq!(house.restored(first_id), before);
        let checked = snapshots.check(false).unwrap();
        assert!(checked.damages.iter().all(|(id, _)| *id == second) && !checked.damages.is_empty());
    }
}

#[test]
fn records_and_folders_of_a_newer_version_are_refused_with_a_reason() {
    let mut house = House::new();
    house.write("a", "x");
    let id = house.take(None).cache.record().id;
    let record = stored(&house, "records").remove(0);
    let mut bytes = fs::read(&record).unwrap();
    bytes[8] = 2;
    fs::write(&record, &bytes).unwrap();
    let error = house.snapshots.record(id).unwrap_err();
    assert_eq!(error.kind, Kind::Newer);
    assert!(error.message.contains("newer tenure"), "{error}");
    assert_eq!(house.snapshots.collect(std::time::Duration::ZERO).unwrap_err().kind, Kind::Newer);
    let format = house.folder.path().join("snapshots/format");
    let mut bytes = fs::read(&format).unwrap();
    bytes[8] = 2;
    fs::write(&format, &bytes).unwrap();
    assert_eq!(open(house.folder.path(), None).unwrap_err().kind, Kind::Newer);
}

#[test]
fn another_key_or_none_is_refused_and_the_right_one_still_works() {
    let folder = tempfile::tempdir().unwrap();
    let workspace = folder.path().join("workspace");
    fs::create_dir(&workspace).unwrap();
    fs::write(workspace.join("a"), "x").unwrap();
    let key = [1; 32];
    open(folder.path(), Some(&key)).unwrap().take(&workspace, None, &plan(1)).unwrap();
    for wrong in [None, Some(&[2; 32])] {
        let error = open(folder.path(), wrong).unwrap_err();
        assert_eq!(error.kind, Kind::WrongKey);
    }
    let target = folder.path().join("target");
    open(folder.path(), Some(&key)).unwrap().restore(Id(1), &target, RestoreLimits::default()).unwrap();
    assert_eq!(describe(&target), describe(&workspace));
}

#[test]
fn z_42_a_snapshot_larger_than_the_limit_is_not_restored() {
    let mut house = House::new();
    house.write("a", vec![0; 3_000_000]);
    house.write("b", "x");
    let id = house.take(None).cache.record().id;
    let target = house.folder.path().join("target");
    for limits in [RestoreLimits { bytes: 1_000_000, entries: 10 }, RestoreLimits { bytes: 10_000_000, entries: 1 }] {
        let error = house.snapshots.restore(id, &target, limits).unwrap_err();
        assert_eq!(error.kind, Kind::TooLarge);
        assert!(!target.exists());
    }
}
