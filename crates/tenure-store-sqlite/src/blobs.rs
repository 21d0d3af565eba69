//! Payloads that are too large for a row: files named by their content, durable before the commit
//! that names them (hazard Z-15). One that no row names is harmless.

use crate::errors;
use aws_lc_rs::digest::{SHA256, digest};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use tenure_store::{Error, Kind, MAX_EVENT_BYTES, MAX_INLINE_BYTES};

/// A body as a row keeps it: inline, or as the name of a file.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) inline: Option<String>,
    pub(crate) blob: Option<String>,
}

impl Kept {
    /// A body that is small.
    pub(crate) fn inline(body: String) -> Self {
        Self { inline: Some(body), blob: None }
    }
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
            return Err(Error::new(
                Kind::Invalid,
                format!("an event of {} bytes is larger than {MAX_EVENT_BYTES}", body.len()),
            ));
        }
        if body.len() <= MAX_INLINE_BYTES {
            return Ok(Kept::inline(body));
        }
        let name = name(tenant, body.as_bytes());
        self.write(&name, body.as_bytes()).map_err(|error| errors::file("keep a large payload", error))?;
        Ok(Kept { inline: None, blob: Some(name) })
    }

    /// The text of a kept body.
    pub(crate) fn load<'a>(&self, kept: &'a Kept) -> Result<Cow<'a, str>, Error> {
        match kept {
            Kept { inline: Some(body), .. } => Ok(Cow::Borrowed(body)),
            Kept { inline: None, blob: Some(name) } => {
                let corrupt =
                    |error| Error::caused(Kind::Corrupt, format!("payload {name} cannot be read: {error}"), error);
                fs::read_to_string(self.path(name)).map(Cow::Owned).map_err(corrupt)
            }
            Kept { inline: None, blob: None } => {
                Err(Error::new(Kind::Corrupt, "a row has neither a body nor a payload"))
            }
        }
    }

    /// Copies all payloads into another folder.
    pub(crate) fn copy(&self, to: &Path) -> std::io::Result<()> {
        fs::create_dir_all(to)?;
        let folders = match fs::read_dir(&self.folder) {
            Ok(folders) => folders,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        for folder in folders {
            let folder = folder?;
            let target = to.join(folder.file_name());
            fs::create_dir_all(&target)?;
            for file in fs::read_dir(folder.path())? {
                let file = file?;
                // Files whose name begins with a dot are not whole yet, and no row names them.
                if !file.file_name().as_encoded_bytes().starts_with(b".") {
                    let target = target.join(file.file_name());
                    fs::copy(file.path(), &target)?;
                    File::open(target)?.sync_all()?;
                }
            }
            File::open(&target)?.sync_all()?;
        }
        File::open(to)?.sync_all()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(&name[..2.min(name.len())]).join(name)
    }

    /// Writes a payload so that it is durable when this returns, also if another writer made it a
    /// moment ago and has not synchronised the folders yet.
    fn write(&self, name: &str, bytes: &[u8]) -> std::io::Result<()> {
        let path = self.path(name);
        let folder = path.parent().expect("a payload lies in a folder");
        fs::create_dir_all(folder)?;
        if fs::metadata(&path).is_ok_and(|metadata| metadata.len() == bytes.len() as u64) {
            return self.sync(folder);
        }
        let draft = folder.join(format!(".{}-{:016x}", std::process::id(), rand::random::<u64>()));
        let written = write_file(&draft, bytes).and_then(|()| fs::rename(&draft, &path));
        if written.is_err() {
            let _ = fs::remove_file(&draft);
        }
        written?;
        self.sync(folder)
    }

    fn sync(&self, folder: &Path) -> std::io::Result<()> {
        File::open(folder)?.sync_all()?;
        File::open(&self.folder)?.sync_all()
    }
}

fn write_file(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
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
