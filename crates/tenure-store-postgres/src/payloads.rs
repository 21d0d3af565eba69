//! Bodies that are too large for a row: in parts, named by their content, durable before the row that
//! names them (hazard Z-15). One that no row names is harmless.

use crate::link::Link;
use crate::params::{params, tenant_text};
use crate::statements as sql;
use crate::trouble::Trouble;
use aws_lc_rs::digest::{Context, SHA256};
use std::borrow::Cow;
use tenure_core::TenantId;
use tenure_store::{Error, Kind, MAX_EVENT_BYTES, MAX_INLINE_BYTES};

/// Bytes of one part: no row of the family may be larger than 1 MiB.
const PART_BYTES: usize = 512 * 1024;

/// A body as a row keeps it: inline, or as the name of a payload.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) inline: Option<String>,
    pub(crate) payload: Option<Vec<u8>>,
}

/// Keeps a body, as a payload if it is large.
pub(crate) async fn keep(link: &Link, tenant: &TenantId, body: &str) -> Result<Kept, Trouble> {
    let tenant = tenant_text(tenant);
    if body.len() > MAX_EVENT_BYTES {
        let message = format!("an event of {} bytes is larger than {MAX_EVENT_BYTES}", body.len());
        return Err(Error::new(Kind::Invalid, message).into());
    }
    if body.len() <= MAX_INLINE_BYTES {
        return Ok(Kept { inline: Some(body.to_owned()), payload: None });
    }
    let name = name(&tenant, body.as_bytes());
    for (part, bytes) in (0_i32..).zip(body.as_bytes().chunks(PART_BYTES)) {
        link.run(sql::NEW_PART, params![shard(&name), tenant, name, part, bytes.to_vec()]).await?;
    }
    Ok(Kept { inline: None, payload: Some(name) })
}

/// The text of a kept body.
pub(crate) async fn load<'a>(link: &Link, kept: &'a Kept) -> Result<Cow<'a, str>, Trouble> {
    match kept {
        Kept { inline: Some(body), .. } => Ok(Cow::Borrowed(body)),
        Kept { inline: None, payload: Some(name) } => {
            let (mut bytes, mut tenant) = (Vec::new(), String::new());
            for row in link.rows(sql::PARTS, params![shard(name), name.clone()]).await? {
                bytes.extend_from_slice(row.get::<_, &[u8]>(0));
                tenant = row.get(1);
            }
            let is_whole = self::name(&tenant, &bytes) == *name;
            let text = String::from_utf8(bytes).ok().filter(|_| is_whole);
            text.map(Cow::Owned)
                .ok_or_else(|| Error::new(Kind::Corrupt, "a large payload is missing or damaged").into())
        }
        Kept { inline: None, payload: None } => {
            Err(Error::new(Kind::Corrupt, "a row has neither a body nor a payload").into())
        }
    }
}

/// The name of a payload: nobody finds another tenant's by its content.
fn name(tenant: &str, body: &[u8]) -> Vec<u8> {
    let mut context = Context::new(&SHA256);
    [tenant.as_bytes(), b"\0", body].iter().for_each(|part| context.update(part));
    context.finish().as_ref().to_vec()
}

fn shard(name: &[u8]) -> i16 {
    i16::from(name[0])
}
