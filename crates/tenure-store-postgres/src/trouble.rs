//! What can go wrong between a statement and its reply, and what to do about it.

use tenure_core::stored::Corrupt;
use tenure_store::{Error, Kind};
use tokio_postgres::error::SqlState;

/// Why a statement, or a whole transaction, did not work.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The answer is no; the same again would get the same.
    Refused(Error),
    /// Nothing was changed, and the same again may work: two transactions met.
    Again(Error),
    /// The connection is gone. If it went during COMMIT, nobody knows what became of it.
    Lost(Error),
}

impl Trouble {
    /// The error of the port.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Refused(error) | Self::Again(error) | Self::Lost(error) => error,
        }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(state) = error.code().cloned() else {
            // Not a word of the database: the connection, or bytes that are no row of ours.
            let is_closed =
                error.is_closed() || std::error::Error::source(&error).is_some_and(|s| s.is::<std::io::Error>());
            let message = format!("the connection to the database broke: {}", words(&error));
            return match is_closed {
                true => Self::Lost(Error::caused(Kind::Retry, message, error)),
                false => {
                    let message = format!("the database replied something unexpected: {}", words(&error));
                    Self::Refused(Error::caused(Kind::Broken, message, error))
                }
            };
        };
        let message = |fix: &str| format!("the database refused: {} [{}] ({fix})", words(&error), state.code());
        match &state.code()[..2] {
            "40" | "55" => {
                Self::Again(Error::caused(Kind::Retry, message("transactions met; it is tried again"), error))
            }
            _ if state == SqlState::QUERY_CANCELED => {
                Self::Again(Error::caused(Kind::Retry, message("it took longer than the database allows"), error))
            }
            // Two processes make the tables at once: the second look finds them.
            _ if [SqlState::DUPLICATE_OBJECT, SqlState::DUPLICATE_TABLE].contains(&state) => {
                Self::Again(Error::caused(Kind::Retry, message("another process makes the tables"), error))
            }
            // Two writers added the same key at once: the second look finds the first one's.
            _ if state == SqlState::UNIQUE_VIOLATION => {
                Self::Again(Error::caused(Kind::Conflict, message("the row exists already"), error))
            }
            _ if state == SqlState::DISK_FULL => {
                Self::Refused(Error::caused(Kind::NoSpace, message("free space on the disk of the database"), error))
            }
            "08" | "57" | "53" => {
                Self::Lost(Error::caused(Kind::Retry, message("the database is away or busy"), error))
            }
            "25" if state == SqlState::READ_ONLY_SQL_TRANSACTION => {
                Self::Lost(Error::caused(Kind::Retry, message("this is a standby; the primary is wanted"), error))
            }
            "28" | "3D" | "42" => Self::Refused(Error::caused(
                Kind::Broken,
                message("check store.url, the role's rights and the schema"),
                error,
            )),
            "XX" => Self::Refused(Error::caused(Kind::Broken, message("the database is damaged; see its log"), error)),
            _ => Self::Refused(Error::caused(Kind::Broken, message("this is a bug of the store"), error)),
        }
    }
}

/// A stored record that cannot be read; its bytes stay.
pub(crate) fn corrupt(of: impl std::fmt::Display, error: Corrupt) -> Error {
    Error::caused(Kind::Corrupt, format!("{of}: {error}"), error)
}

/// An error with what lies below it, which is where the database's words are.
fn words(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(db) => db.message().to_owned(),
        None => match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}
