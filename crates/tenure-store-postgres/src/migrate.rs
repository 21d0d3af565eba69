//! Makes the tables, or checks that they are those of this release.

use crate::link::Link;
use crate::params::params;
use crate::statements as sql;
use crate::trouble::Trouble;
use tenure_store::{Error, Kind};

/// The version of the tables that this release reads and writes.
pub(crate) const VERSION: i64 = 3;

/// Each brings the tables to the next version, the first one from version 1.
const STEPS: [&str; VERSION as usize - 1] = [include_str!("schema_1_to_2.sql"), include_str!("schema_2_to_3.sql")];

/// Brings the database to [`VERSION`]. Two processes may do it at once: the row of the version is
/// locked, and the second one finds everything done.
pub(crate) async fn migrate(link: &Link) -> Result<(), Trouble> {
    if let Ok(Some(row)) = link.first(sql::GET_VERSION, params![]).await
        && check(row.get(0))?
    {
        return Ok(());
    }
    link.soil();
    link.plain(sql::NEW_META).await?;
    link.plain("BEGIN; SET LOCAL lock_timeout = '60s'").await?;
    let version: i64 = link.one(sql::LOCK_VERSION, params![]).await?.get(0);
    if !check(version)? {
        match usize::try_from(version) {
            Ok(from @ 1..) => {
                for step in &STEPS[from - 1..] {
                    link.plain(step).await?;
                }
            }
            Ok(0) | Err(_) => link.plain(include_str!("schema.sql")).await?,
        }
        link.run(sql::SET_VERSION, params![VERSION]).await?;
    }
    link.plain("COMMIT").await?;
    link.clean();
    Ok(())
}

/// Whether nothing has to be done.
fn check(found: i64) -> Result<bool, Error> {
    if found > VERSION {
        let message = format!(
            "the database has tables of version {found}, and this release knows {VERSION}: a newer release made them; \
             start that one"
        );
        return Err(Error::new(Kind::Broken, message));
    }
    Ok(found == VERSION)
}
