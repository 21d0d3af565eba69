//! One server for one data folder.
//!
//! Two servers on one folder would overwrite each other's address and both show previews of half of
//! the workers. The lock is an advisory one on a file of its own, so the kernel drops it whenever its
//! holder dies, killed or not. Workers do not take it: any number of them share a folder.

use crate::config::{self, Config};
use crate::connection;
use crate::failure::{Exit, Failure};
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;

/// The file in the data folder.
const FILE: &str = "server.lock";
/// Most bytes that are read of it: a command and a number.
const MOST_BYTES: u64 = 64;

/// Holds the folder until it is dropped.
#[derive(Debug)]
pub(crate) struct Held(#[expect(dead_code, reason = "the open file is the lock")] File);

/// Takes the data folder for a server.
///
/// # Errors
/// When another server holds it: which one, and what to do.
pub(crate) fn hold(config: &Config, command: &str) -> Result<Held, Failure> {
    let path = config.data.join(FILE);
    let cannot = |error: std::io::Error| {
        Failure::new(Exit::Failed, format!("cannot lock the data folder with {}", path.display()))
            .why(error.to_string())
            .code("data_folder_unusable")
    };
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(cannot)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Err(in_use(config, command, &mut file)),
        Err(error) => return Err(cannot(error.into())),
    }
    // The lock counts; the text is only for the message of whoever comes second.
    let told = file.set_len(0).and_then(|()| write!(file, "tenure {command}, pid {}", std::process::id()));
    told.map_err(cannot)?;
    Ok(Held(file))
}

fn in_use(config: &Config, command: &str, file: &mut File) -> Failure {
    let mut holder = String::new();
    // Without the text, the message says less.
    let _ = file.take(MOST_BYTES).read_to_string(&mut holder);
    let holder = if holder.is_empty() { "its process is not known".to_owned() } else { holder };
    Failure::new(Exit::Conflict, format!("another server uses the data folder {}", config::shown(&config.data)))
        .why(format!("{holder}, at {}", connection::local_address(config)))
        .fix(format!("use that one: tenure ps      or another folder: tenure {command} --data DIR"))
        .code("data_folder_in_use")
}
