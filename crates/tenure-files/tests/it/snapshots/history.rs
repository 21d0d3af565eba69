//! Random histories of a folder: whatever was done, each snapshot gives back what was there.

use super::house::{House, describe};
use proptest::prelude::*;
use rustix::fs::{CWD, Mode};
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::PathBuf;

#[derive(Clone, Debug)]
enum Act {
    Write { at: u8, len: u32, seed: u8 },
    Append { at: u8, len: u16 },
    Truncate { at: u8, len: u16 },
    Poke { at: u8, place: u16 },
    Hole { at: u8, len: u32 },
    Folder { at: u8 },
    Link { at: u8, to: u8 },
    HardLink { at: u8, to: u8 },
    Fifo { at: u8 },
    Remove { at: u8 },
    Rename { at: u8, to: u8 },
    Mode { at: u8, mode: u16 },
    Snapshot { keeps_cache: bool },
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (any::<u8>(), 0..400_000u32, any::<u8>()).prop_map(|(at, len, seed)| Act::Write { at, len, seed }),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(at, seed)| Act::Write { at, len: 20, seed }),
        1 => (any::<u8>(), any::<u16>()).prop_map(|(at, len)| Act::Append { at, len }),
        1 => (any::<u8>(), any::<u16>()).prop_map(|(at, len)| Act::Truncate { at, len }),
        2 => (any::<u8>(), any::<u16>()).prop_map(|(at, place)| Act::Poke { at, place }),
        1 => (any::<u8>(), any::<u32>()).prop_map(|(at, len)| Act::Hole { at, len: len % 2_000_000 }),
        3 => any::<u8>().prop_map(|at| Act::Folder { at }),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(at, to)| Act::Link { at, to }),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(at, to)| Act::HardLink { at, to }),
        1 => any::<u8>().prop_map(|at| Act::Fifo { at }),
        2 => any::<u8>().prop_map(|at| Act::Remove { at }),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(at, to)| Act::Rename { at, to }),
        1 => (any::<u8>(), any::<u16>()).prop_map(|(at, mode)| Act::Mode { at, mode }),
        3 => any::<bool>().prop_map(|keeps_cache| Act::Snapshot { keeps_cache }),
    ]
}

/// Few paths, so that the same one is a file, a folder and a link in turn.
fn path(house: &House, at: u8) -> PathBuf {
    let names = ["a", "b", "c"];
    let name = |part: u8| names[usize::from(part % 3)];
    let mut path = house.path(name(at));
    if at & 0x40 != 0 {
        path.push(name(at >> 2));
    }
    if at & 0x80 != 0 {
        path.push(name(at >> 4));
    }
    path
}

/// Does it as far as the file system lets it be done: many acts meet something of another kind.
fn perform(house: &House, act: &Act) -> std::io::Result<()> {
    match act {
        Act::Write { at, len, seed } => {
            let mut state = u32::from(*seed) + 1;
            let content: Vec<u8> = (0..*len)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as u8 & 0x1f
                })
                .collect();
            regular(&path(house, *at))?;
            fs::write(path(house, *at), content)
        }
        Act::Append { at, len } => {
            regular(&path(house, *at))?;
            let mut file = fs::OpenOptions::new().append(true).open(path(house, *at))?;
            std::io::Write::write_all(&mut file, &vec![b'+'; usize::from(*len)])
        }
        Act::Truncate { at, len } => {
            regular(&path(house, *at))?;
            fs::OpenOptions::new().write(true).open(path(house, *at))?.set_len(u64::from(*len))
        }
        Act::Poke { at, place } => {
            regular(&path(house, *at))?;
            fs::OpenOptions::new().write(true).open(path(house, *at))?.write_all_at(b"!", u64::from(*place))
        }
        Act::Hole { at, len } => {
            regular(&path(house, *at))?;
            let file = fs::File::create(path(house, *at))?;
            file.set_len(u64::from(*len))?;
            file.write_all_at(b"after a hole", u64::from(*len) / 2)
        }
        Act::Folder { at } => fs::create_dir(path(house, *at)),
        Act::Link { at, to } => symlink(path(house, *to), path(house, *at)),
        Act::HardLink { at, to } => {
            regular(&path(house, *to))?;
            fs::hard_link(path(house, *to), path(house, *at))
        }
        Act::Fifo { at } => {
            Ok(rustix::fs::mknodat(CWD, path(house, *at), rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0)?)
        }
        Act::Remove { at } => {
            let path = path(house, *at);
            if fs::symlink_metadata(&path)?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
        }
        Act::Rename { at, to } => fs::rename(path(house, *at), path(house, *to)),
        Act::Mode { at, mode } => {
            let metadata = fs::symlink_metadata(path(house, *at))?;
            if metadata.is_symlink() {
                return Ok(());
            }
            fs::set_permissions(path(house, *at), fs::Permissions::from_mode(u32::from(*mode) & 0o7777 | 0o700))
        }
        Act::Snapshot { .. } => Ok(()),
    }
}

/// Nothing that blocks or leads elsewhere when it is opened.
fn regular(path: &std::path::Path) -> std::io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.is_file() => Err(std::io::ErrorKind::InvalidInput.into()),
        Ok(_) | Err(_) => Ok(()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_to_a_folder_each_snapshot_gives_back_what_was_there(
        acts in proptest::collection::vec(act(), 1..60),
    ) {
        let mut house = House::new();
        let mut expected = Vec::new();
        let (mut cache, mut newest) = (None, None);
        for act in acts.iter().chain([&Act::Snapshot { keeps_cache: true }]) {
            let _ = perform(&house, act);
            if let Act::Snapshot { keeps_cache } = act {
                let plan = tenure_files::snapshots::Plan { parent: newest, ..house.plan() };
                let cache_now = if *keeps_cache { cache.take() } else { None };
                let taken = house.snapshots.take(&house.workspace(), cache_now, &plan).unwrap();
                let id = taken.cache.record().id;
                newest = Some(id);
                expected.push((id, describe(&house.workspace())));
                cache = Some(taken.cache);
            }
        }
        for (id, described) in expected {
            prop_assert_eq!(house.restored(id), described);
        }
        let checked = house.snapshots.check(true).unwrap();
        prop_assert!(checked.damages.is_empty(), "{:?}", checked.damages);
    }
}
