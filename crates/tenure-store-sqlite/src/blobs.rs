//! Payloads that are too large for a row: files named by their content, durable before the commit
//! that names them (hazard Z-15). One that no row names is harmless.

use crate::errors;
use aws_lc_rs::digest::{SHA256, digest};
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use tenure_store::{Error, MAX_EVENT_BYTES, MAX_INLINE_BYTES, Kind};

/// A body as a row keeps it: inline, or as the name of a file.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) inline: Option<String>,
    pub(crate) blob: Option<String>,
}

/// The folder of large payloads.
#[derive(Clone, Debug)]
pub(crate) struct Blobs {
    folder: PathBuf,
}

impl Blobs {
    pub(crate) fn new(data: &Path) -> Self {
        Self { folder: data.join("blobs") }
    }

    /// Keeps a body, as a file if it is large.
    pub(crate) fn keep(&self, tenant: &str, body: String) -> Result<Kept, Error> {
        if body.len() > MAX_EVENT_BYTES {
            return Err(Error::new(Kind::Invalid, format!("an event of {} bytes is larger than {MAX_EVENT_BYTES}", body.len())));
        }
        if body.len() <= MAX_INLINE_BYTES {
            return Ok(Kept { inline: Some(body), blob: None });
        }
        let name = name(tenant, body.as_bytes());
        self.write(&name, body.as_bytes()).map_err(|error| errors::file("keep a large payload", error))?;
        Ok(Kept { inline: None, blob: Some(name) })
    }

    /// The text of a kept body.
    pub(crate) fn load(&self, inline: Option<String>, blob: Option<String>) -> Result<String, Error> {
        match (inline, blob) {
            (Some(body), _) => Ok(body),
            (None, Some(name)) => fs::read_to_string(self.path(&name)).map_err(|error| {
                Error::caused(Kind::Corrupt, format!("payload {name} cannot be read: {error}"), error)
            }),
            (None, None) => Err(Error::new(Kind::Corrupt, "a row has neither a body nor a payload")),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(&name[..2.min(name.len())]).join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> std::io::Result<()> {
        let path = self.path(name);
        if path.exists() {
            return Ok(());
        }
        let folder = path.parent().expect("a payload lies in a folder");
        fs::create_dir_all(folder)?;
        let draft = folder.join(format!(".{}-{:016x}", std::process::id(), rand::random::<u64>()));
        let mut file = OpenOptions::new().write(true).create_new(true).open(&draft)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&draft, &path)?;
        File::open(folder)?.sync_all()?;
        File::open(&self.folder)?.sync_all()
    }
}

/// The tenant is part of the name: equal content of two tenants is two files.
fn name(tenant: &str, bytes: &[u8]) -> String {
    let mut text = String::new();
    for part in [digest(&SHA256, tenant.as_bytes()).as_ref()[..8].to_vec(), digest(&SHA256, bytes).as_ref().to_vec()] {
        for byte in part {
            write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        }
    }
    // The content comes first, so that the files spread over the folders.
    format!("{}-{}", &text[16..], &text[..16])
}
