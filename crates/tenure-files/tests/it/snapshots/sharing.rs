//! What a snapshot costs, what it shares, and what is collected.

use super::fidelity::walk;
use super::house::{House, describe, open, plan};
use std::fs;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tenure_files::Kind;
use tenure_files::snapshots::{Consistency, Id, Plan};

fn stored_bytes(house: &House) -> u64 {
    walk(&house.folder.path().join("snapshots")).iter().map(|path| fs::metadata(path).unwrap().len()).sum()
}

/// Content that cannot be compressed.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

#[test]
fn the_cost_of_a_snapshot_follows_what_changed() {
    let mut house = House::new();
    for number in 0..1_000 {
        house.write(&format!("{}/{}", number % 20, number), noise(number, 2_000));
    }
    let mut cache = house.take(None).cache;
    for round in 0..30u64 {
        for number in 0..3 {
            house.write(&format!("{}/{}", number * 7 % 20, number * 7), noise(10_000 + round * 3 + number, 2_000));
        }
        let before = stored_bytes(&house);
        cache = house.take(Some(cache)).cache;
        let grown = stored_bytes(&house) - before;
        // One in nine stores its folders whole again.
        let most = 6_000 * 12 / 10 + 4_096 + if round % 9 == 8 { 40_000 } else { 0 };
        assert!(grown < most, "round {round} took {grown} bytes");
    }
    let unchanged = house.take(Some(cache));
    assert!(!unchanged.is_new);
    assert_eq!(house.restored(unchanged.cache.record().id), describe(&house.workspace()));
}

#[test]
fn small_packs_become_one_and_wasted_ones_are_left() {
    let mut house = House::new();
    house.write("large", noise(1, 3_000_000));
    house.write("kept", noise(2, 50_000));
    let mut cache = Some(house.take(None).cache);
    let mut ids = Vec::new();
    house.write("large", "small now");
    for round in 0..90 {
        house.write("changes", noise(100 + round, 600));
        let taken = house.take(cache.take());
        assert!(taken.is_new);
        ids.push(taken.cache.record().id);
        cache = Some(taken.cache);
    }
    let newest = *ids.last().unwrap();
    for id in &ids[..ids.len() - 1] {
        house.snapshots.remove(*id).unwrap();
    }
    house.snapshots.remove(Id(2)).unwrap();
    house.snapshots.collect(Duration::ZERO).unwrap();
    assert_eq!(house.restored(newest), describe(&house.workspace()));
    assert!(stored_bytes(&house) < 300_000, "{} bytes are left", stored_bytes(&house));
}

#[test]
fn the_same_content_of_another_session_is_stored_once() {
    let mut house = House::new();
    house.write("a", noise(1, 2_000_000));
    house.write("b", noise(2, 2_000_000));
    house.take(None);
    let before = stored_bytes(&house);
    // Another process, which knows nothing yet.
    let snapshots = open(house.folder.path(), None).unwrap();
    let other = Plan { session: "sesn_2".into(), ..plan(900) };
    let taken = snapshots.take(&house.workspace(), None, &other).unwrap();
    assert!(taken.is_new);
    assert!(stored_bytes(&house) - before < 10_000);
    assert_eq!(house.restored(Id(900)), describe(&house.workspace()));
}

#[test]
fn z_14_a_pack_that_is_collected_before_its_new_user_is_whole_is_stored_again() {
    let mut house = House::new();
    house.write("a", noise(1, 2_000_000));
    let first = house.take(None).cache.record().id;
    // It knows the chunks of the first snapshot.
    let snapshots = open(house.folder.path(), None).unwrap();
    let cache = snapshots.cache(first).unwrap();
    house.snapshots.remove(first).unwrap();
    house.snapshots.collect(Duration::ZERO).unwrap();
    assert!(walk(&house.folder.path().join("snapshots/packs")).is_empty());
    let taken = snapshots.take(&house.workspace(), Some(cache), &plan(901)).unwrap();
    assert!(taken.is_new || taken.cache.record().id == Id(901), "the old one does not exist any more");
    assert_eq!(house.restored(Id(901)), describe(&house.workspace()));
}

#[test]
fn z_15_packs_of_a_snapshot_on_its_way_are_kept_for_the_grace_time() {
    let mut house = House::new();
    house.write("a", noise(1, 100_000));
    let id = house.take(None).cache.record().id;
    house.snapshots.remove(id).unwrap();
    let collected = house.snapshots.collect(Duration::from_secs(3_600)).unwrap();
    assert_eq!((collected.packs, collected.waiting), (0, 1));
    assert_eq!(house.snapshots.collect(Duration::ZERO).unwrap().packs, 1);
    assert_eq!(house.snapshots.record(id).unwrap_err().kind, Kind::NotFound);
}

#[test]
fn collecting_while_others_take_and_restore_loses_nothing() {
    let house = House::new();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let takers: Vec<_> = (0..2u64)
            .map(|taker| {
                let house = &house;
                scope.spawn(move || {
                    let folder = house.folder.path().join(format!("work of {taker}"));
                    fs::create_dir(&folder).unwrap();
                    let snapshots = open(house.folder.path(), None).unwrap();
                    let (mut cache, mut newest) = (None, None);
                    for round in 0..10u64 {
                        // Both write the same at about the same time.
                        fs::write(folder.join(format!("{}", round % 5)), noise(round, 20_000)).unwrap();
                        let id = 1_000 * (u128::from(taker) + 1) + u128::from(round);
                        let plan = Plan { parent: newest, ..plan(id) };
                        // With nothing kept in between, the packs are collected under its hands.
                        let taken = loop {
                            match snapshots.take(&folder, cache.take(), &plan) {
                                Ok(taken) => break taken,
                                Err(error) => assert_eq!(error.kind, Kind::Gone, "{error}"),
                            }
                        };
                        let id = taken.cache.record().id;
                        let target = house.folder.path().join(format!("target of {taker}"));
                        snapshots.restore(id, &target, Default::default()).unwrap();
                        assert_eq!(describe(&target), describe(&folder));
                        if let Some(old) = newest.filter(|old| *old != id) {
                            snapshots.remove(old).unwrap();
                        }
                        newest = Some(id);
                        cache = Some(taken.cache);
                    }
                })
            })
            .collect();
        let collector = scope.spawn(|| {
            let snapshots = open(house.folder.path(), None).unwrap();
            while !is_done.load(Ordering::SeqCst) {
                // A snapshot may be removed between the list and its record.
                let _ = snapshots.collect(Duration::ZERO);
            }
        });
        let ended: Vec<_> = takers.into_iter().map(|taker| taker.join()).collect();
        is_done.store(true, Ordering::SeqCst);
        collector.join().unwrap();
        for taker in ended {
            taker.unwrap();
        }
    });
}

#[test]
fn o_075_files_that_change_while_they_are_read_do_not_stop_a_snapshot() {
    let mut house = House::new();
    for number in 0..60 {
        house.write(&format!("still/{number}"), vec![7; 3_000]);
    }
    house.write("log", "start\n");
    let is_done = AtomicBool::new(false);
    let path = house.workspace();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut log = fs::OpenOptions::new().append(true).open(path.join("log")).unwrap();
            let mut number = 0u32;
            while !is_done.load(Ordering::SeqCst) {
                number += 1;
                log.write_all(b"one more line\n").unwrap();
                fs::write(path.join("comes and goes"), vec![b'x'; (number % 900) as usize]).unwrap();
                let _ = fs::remove_file(path.join("comes and goes"));
            }
        });
        let mut cache = None;
        for round in 0..12u128 {
            let plan = plan(5_000 + round);
            let taken = house.snapshots.take(&house.workspace(), cache.take(), &plan).unwrap();
            let record = taken.cache.record().clone();
            assert!(matches!(record.consistency, Consistency::Fuzzy | Consistency::Torn));
            let target = house.folder.path().join("target");
            house.snapshots.restore(record.id, &target, Default::default()).unwrap();
            let log = fs::read_to_string(target.join("log")).unwrap();
            assert!(log.starts_with("start\n"));
            if record.consistency == Consistency::Fuzzy {
                assert!(log.ends_with('\n') && log.len() % 14 == 6, "one version of it");
            }
            assert_eq!(fs::read(target.join("still/7")).unwrap(), [7; 3_000]);
            cache = Some(taken.cache);
        }
        is_done.store(true, Ordering::SeqCst);
        writer.join().unwrap();
    });
    let quiet = house.take(None).cache.record().clone();
    assert_eq!(quiet.consistency, Consistency::Fuzzy);
}

#[test]
fn a_change_that_keeps_size_and_time_is_not_missed() {
    let mut house = House::new();
    house.write("a", "first!");
    let time = fs::metadata(house.path("a")).unwrap().modified().unwrap();
    let first = house.take(None);
    house.write("a", "second");
    fs::File::options().write(true).open(house.path("a")).unwrap().set_modified(time).unwrap();
    let second = house.take(Some(first.cache));
    assert!(second.is_new);
    assert_eq!(house.restored(second.cache.record().id), describe(&house.workspace()));
}
