//! Paths inside a workspace: relative, without `..`, bytes.

use crate::error::{Error, Kind};

/// Longest path that is taken.
const MAX_PATH: usize = 4_096;

/// The parts of a path below the workspace; none for the workspace itself.
///
/// A leading `/workspace`, as commands see it, is allowed; any other absolute path is not.
pub(crate) fn parts(path: &[u8]) -> Result<Vec<&[u8]>, Error> {
    if path.len() > MAX_PATH || path.contains(&0) {
        return Err(Error::new(Kind::Invalid, "a path is at most 4096 bytes and holds no NUL"));
    }
    let inside = match path.strip_prefix(b"/workspace") {
        Some(rest) if rest.is_empty() || rest.starts_with(b"/") => rest,
        _ if path.starts_with(b"/") => return Err(escapes(path)),
        _ => path,
    };
    let mut parts = Vec::new();
    for part in inside.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return Err(escapes(path)),
            part => parts.push(part),
        }
    }
    Ok(parts)
}

fn escapes(path: &[u8]) -> Error {
    Error::new(Kind::Escapes, format!("{} leads out of the workspace", String::from_utf8_lossy(path)))
}

/// The parts as one path; `.` for the workspace itself.
pub(crate) fn join(parts: &[&[u8]]) -> Vec<u8> {
    if parts.is_empty() { b".".to_vec() } else { parts.join(&b'/') }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_leave_the_workspace_are_refused_and_others_are_cleaned() {
        for path in [&b".."[..], b"a/../..", b"/etc/passwd", b"/workspacex", b"a\0b"] {
            assert!(parts(path).is_err(), "{}", String::from_utf8_lossy(path));
        }
        for (path, cleaned) in [
            (&b""[..], &b"."[..]),
            (b"/workspace", b"."),
            (b"/workspace/a", b"a"),
            (b"./a//b/", b"a/b"),
            (b"bad\xffname", b"bad\xffname"),
        ] {
            assert_eq!(parts(path).map(|parts| join(&parts)).ok().as_deref(), Some(cleaned));
        }
    }
}
