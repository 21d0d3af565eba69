//! Removes what no snapshot needs, and looks whether all is there that snapshots need.

use super::backend::DRAFT;
use super::node::{Content, PackId};
use super::record::Id;
use super::seal::ObjectKind;
use super::store::{Snapshots, pack_name, pack_of};
use crate::error::Error;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// How long a pack that no snapshot needs is kept at least: a snapshot on its way, or one of a
/// restored backup, may need it (hazards Z-14, Z-52).
pub const GRACE: Duration = Duration::from_secs(24 * 3_600);

/// How long what was not stored to its end is kept at least: it may be on its way.
const DRAFT_GRACE: Duration = Duration::from_secs(3_600);

/// Damages that are named; the others are counted.
const MAX_DAMAGES: usize = 1_000;

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Packs that were removed.
    pub packs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packs that no snapshot needs and that are kept for now.
    pub waiting: u64,
}

/// What a look at everything found.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// Snapshots that were looked at.
    pub snapshots: u64,
    /// Objects that were read or looked for.
    pub objects: u64,
    /// Which snapshots are damaged, where, and how.
    pub damages: Vec<(Id, String)>,
}

impl Snapshots {
    /// Removes packs that no snapshot has needed for as long as `grace`.
    ///
    /// # Errors
    /// When one record cannot be read: nothing is removed then, for it may need anything.
    pub fn collect(&self, grace: Duration) -> Result<Collected, Error> {
        // Nobody publishes or restores meanwhile; new packs are younger than the grace time, and their
        // snapshot makes sure that they are there before it becomes visible.
        let _lock = self.backend.lock(true)?;
        let mut needed: HashSet<PackId> = HashSet::new();
        for id in self.ids()? {
            needed.extend(self.record(id)?.packs.into_iter().map(|(pack, _)| pack));
        }
        let mut collected = Collected::default();
        for stored in self.backend.list("packs")? {
            let is_draft = stored.name.ends_with(DRAFT);
            let pack = pack_of(&stored.name);
            // Names that nobody here gave are left alone.
            if !is_draft && pack.is_none_or(|pack| needed.contains(&pack)) {
                continue;
            }
            if stored.age < if is_draft { grace.max(DRAFT_GRACE) } else { grace } {
                collected.waiting += 1;
                continue;
            }
            self.backend.remove(&stored.name)?;
            collected.packs += 1;
            collected.bytes += stored.bytes;
            if let Some(pack) = pack {
                self.seen().forget(&HashSet::from([pack]));
            }
        }
        Ok(collected)
    }

    /// Looks at every snapshot. With `reads`, every byte is read and checked, otherwise folders only.
    ///
    /// # Errors
    /// When the snapshots cannot be listed.
    pub fn check(&self, reads: bool) -> Result<Checked, Error> {
        let mut checked = Checked::default();
        let mut is_read: HashMap<(PackId, u64), Option<String>> = HashMap::new();
        for id in self.ids()? {
            checked.snapshots += 1;
            let mut damaged = Vec::new();
            if let Err(error) = self.check_one(id, reads, &mut is_read, &mut damaged) {
                damaged.push(error.to_string());
            }
            let room = MAX_DAMAGES.saturating_sub(checked.damages.len());
            checked.damages.extend(damaged.into_iter().take(room).map(|damage| (id, damage)));
        }
        checked.objects = is_read.len() as u64;
        Ok(checked)
    }

    fn check_one(
        &self,
        id: Id,
        reads: bool,
        is_read: &mut HashMap<(PackId, u64), Option<String>>,
        damaged: &mut Vec<String>,
    ) -> Result<(), Error> {
        let record = self.record(id)?;
        for pack in self.gone(&record.packs)? {
            damaged.push(format!("{} is missing or cut", pack_name(&pack)));
        }
        let mut next = vec![(Vec::new(), record.root)];
        while let Some((path, entry)) = next.pop() {
            let shown = || String::from_utf8_lossy(&path).into_owned();
            if let Content::Folder(reference) = &entry.content {
                match self.folder(reference) {
                    Ok(folder) => {
                        is_read.extend(folder.forms.iter().map(|form| ((form.pack, form.offset), None)));
                        let inside = folder.entries.into_iter();
                        next.extend(inside.map(|(name, entry)| (super::restore::join(&path, &name), entry)));
                    }
                    Err(error) => damaged.push(format!("{}: {error}", shown())),
                }
                continue;
            }
            let pieces = match self.pieces(&entry.content) {
                Ok(pieces) => pieces,
                Err(error) => {
                    damaged.push(format!("{}: {error}", shown()));
                    continue;
                }
            };
            for piece in pieces.iter().filter(|_| reads) {
                let reference = piece.reference;
                let result = is_read
                    .entry((reference.pack, reference.offset))
                    .or_insert_with(|| self.object(ObjectKind::Chunk, &reference).err().map(|error| error.to_string()));
                if let Some(error) = result {
                    damaged.push(format!("{}: {error}", shown()));
                }
            }
        }
        Ok(())
    }
}
