//! Which program of this machine listens on a port, as far as this user may see it.

use std::fs;

/// State of a listening socket in the tables of the kernel.
const LISTENING: &str = "0A";

/// `pid 8123, node`; nothing if it is another user's.
pub(crate) fn of(port: u16) -> Option<String> {
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"].iter().find_map(|table| inode_in(table, port))?;
    let link = format!("socket:[{inode}]");
    let pid = fs::read_dir("/proc").ok()?.flatten().find_map(|process| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        let mut open = fs::read_dir(process.path().join("fd")).ok()?.flatten();
        open.any(|file| fs::read_link(file.path()).is_ok_and(|target| target.as_os_str() == link.as_str()))
            .then_some(pid)
    })?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(format!("pid {pid}, {}", name.trim()))
}

/// The socket that listens on the port, in a table of the kernel.
fn inode_in(table: &str, port: u16) -> Option<String> {
    let text = fs::read_to_string(table).ok()?;
    let end = format!(":{port:04X}");
    text.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields.get(1)?.ends_with(&end) && *fields.get(3)? == LISTENING)
            .then(|| fields.get(9).map(ToString::to_string))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_port_is_found_by_its_process() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let holder = of(port).expect("this process may look at itself");
        assert!(holder.starts_with(&format!("pid {},", std::process::id())), "{holder}");
    }
}
