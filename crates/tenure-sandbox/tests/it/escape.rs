//! Attempts to get out, and what the host's secrets look like from inside.

use std::os::unix::net::UnixListener;

use tenure_sandbox::{Spec, Status};

use crate::machine::{Folders, drivers, namespace, output, run, text};

/// Commands that must fail in every driver that isolates.
const REFUSED: [&str; 12] = [
    "cat /etc/shadow",
    "cat /etc/ssh/ssh_host_ed25519_key /etc/sudoers",
    "ls /proc/1/root/",
    "cat /proc/1/environ | grep .",
    "mount -t tmpfs none /mnt",
    "unshare -U true",
    "unshare -m true",
    "mknod node b 7 0",
    "chroot / true",
    "nsenter -t 1 -m true",
    "python3 -c 'import socket; socket.socket(40, socket.SOCK_STREAM)'",
    "python3 -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)'",
];

#[tokio::test]
async fn escapes_are_refused() {
    for driver in drivers().await {
        if driver.name() == "process" {
            continue;
        }
        let folders = Folders::new();
        let sandbox = driver.start(folders.spec()).await.expect("start");
        for command in REFUSED {
            let outcome = run(&sandbox, command).await;
            assert_ne!(outcome.status, Status::Exited(0), "{}: {command}: {}", driver.name(), text(&outcome));
        }
        sandbox.stop().await;
    }
}

#[tokio::test]
async fn z_40_vsock_and_other_socket_families_are_refused() {
    for driver in drivers().await {
        if driver.name() == "process" {
            continue;
        }
        let folders = Folders::new();
        let sandbox = driver.start(folders.spec()).await.expect("start");
        let script = "python3 -c '
import socket
for family in range(46):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
        try:
            socket.socket(family, kind)
            print(family)
        except OSError:
            pass' | sort -n | uniq | tr '\\n' ' '";
        assert_eq!(output(&sandbox, script).await, "1 2 10 16 ");
        sandbox.stop().await;
    }
}

#[tokio::test]
async fn hidden_host_paths_cannot_be_read() {
    for driver in drivers().await {
        if driver.name() == "process" {
            continue;
        }
        let folders = Folders::new();
        let secret = folders.path().join("secret");
        std::fs::write(&secret, "sk-live-1").expect("a secret");
        let spec = Spec { hidden: vec![folders.path().to_owned()], ..folders.spec() };
        let sandbox = driver.start(spec).await.expect("start");
        for command in [
            format!("cat {}", secret.display()),
            format!("ls {}", folders.path().display()),
            "cat ../secret".to_owned(),
            format!("ln -s {} l; cat l", secret.display()),
        ] {
            let outcome = run(&sandbox, &command).await;
            assert_ne!(outcome.status, Status::Exited(0), "{}: {command}: {}", driver.name(), text(&outcome));
            assert!(!text(&outcome).contains("sk-live-1"));
        }
        assert_eq!(output(&sandbox, "echo mine > file && cat file").await, "mine\n");
        sandbox.stop().await;
    }
}

#[tokio::test]
async fn a_hidden_path_inside_a_shown_tree_is_covered() {
    let Some(driver) = namespace().await else { return };
    let folders = Folders::new();
    let spec = Spec { hidden: vec!["/usr/share".into()], ..folders.spec() };
    let sandbox = driver.start(spec).await.expect("start");
    let outcome = run(&sandbox, "ls /usr/share").await;
    assert_ne!(outcome.status, Status::Exited(0), "{}", text(&outcome));
    sandbox.stop().await;
}

#[tokio::test]
async fn o_088_no_secret_of_the_worker_is_in_the_sandbox() {
    // Set for the whole process before the launcher starts: a worker has such variables.
    for driver in drivers().await {
        let folders = Folders::new();
        let sandbox = driver.start(folders.spec()).await.expect("start");
        let environment = output(&sandbox, "env").await;
        let names: Vec<&str> =
            environment.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
        assert!(!names.iter().any(|name| name.starts_with("CARGO")), "{names:?}");
        let everything = run(
            &sandbox,
            "for p in /proc/[0-9]*; do tr '\\0' '\\n' < $p/environ; done 2>/dev/null | grep -c '^CARGO_' ; true",
        )
        .await;
        if driver.name() != "process" {
            assert_eq!(text(&everything).trim(), "0", "{}", driver.name());
        }
        sandbox.stop().await;
    }
}

#[tokio::test]
async fn sockets_of_the_host_cannot_be_reached() {
    use std::os::linux::net::SocketAddrExt;
    let Some(driver) = namespace().await else { return };
    let folders = Folders::new();
    let name = format!("tenure-test-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).expect("an address");
    let _abstract_listener = UnixListener::bind_addr(&address).expect("listen");
    let _tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("listen");
    let port = _tcp.local_addr().expect("an address").port();
    let sandbox = driver.start(folders.spec()).await.expect("start");
    let script = format!(
        "python3 -c '
import socket
for family, address in ((socket.AF_UNIX, \"\\0{name}\"), (socket.AF_INET, (\"127.0.0.1\", {port}))):
    try:
        socket.socket(family).connect(address)
        print(\"connected\", family)
    except OSError as error:
        print(error.errno)'"
    );
    assert_eq!(output(&sandbox, &script).await, "111\n111\n");
    // Loopback inside works.
    let own = "python3 -c '
import socket
s = socket.create_server((\"127.0.0.1\", 0))
socket.create_connection(s.getsockname())
print(\"ok\")'";
    assert_eq!(output(&sandbox, own).await, "ok\n");
    sandbox.stop().await;
}

#[tokio::test]
async fn z_16_files_of_the_sandbox_belong_to_nobody_important_outside() {
    use std::os::unix::fs::MetadataExt;
    let Some(driver) = namespace().await else { return };
    let folders = Folders::new();
    let sandbox = driver.start(folders.spec()).await.expect("start");
    output(&sandbox, "cp /bin/true t && chmod 6755 t && mkdir d && touch d/f && chmod 0400 d/f && chmod 0500 d").await;
    let metadata = std::fs::metadata(folders.workspace().join("t")).expect("metadata");
    if rustix_is_root() {
        assert!(metadata.uid() >= 0x7000_0000, "owner {}", metadata.uid());
    } else {
        assert_ne!(metadata.uid(), 0);
    }
    assert_eq!(output(&sandbox, "id -u; cat /proc/self/uid_map | tr -s ' '").await.lines().next(), Some("1000"));
    // No capability, no way back to root.
    assert_eq!(
        output(
            &sandbox,
            "grep -E '^Cap(Eff|Prm|Bnd|Amb)' /proc/self/status | tr -s '\\t' ' ' | cut -d' ' -f2 | sort -u"
        )
        .await,
        "0000000000000000\n"
    );
    assert_eq!(
        output(&sandbox, "grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status | tr '\\t' ' '").await,
        "NoNewPrivs: 1\nSeccomp: 2\n"
    );
    sandbox.stop().await;
}

fn rustix_is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|metadata| {
        use std::os::unix::fs::MetadataExt;
        metadata.uid() == 0
    })
}

#[tokio::test]
async fn the_launcher_cannot_be_traced_killed_or_read() {
    let Some(driver) = namespace().await else { return };
    let folders = Folders::new();
    let sandbox = driver.start(folders.spec()).await.expect("start");
    let outcome = run(&sandbox, "kill -9 1; kill -STOP 1; cat /proc/1/maps; ls -l /proc/1/exe /proc/1/fd").await;
    assert_ne!(outcome.status, Status::Exited(0), "{}", text(&outcome));
    assert_eq!(output(&sandbox, "echo alive").await, "alive\n");
    let writes = run(&sandbox, "touch /x /usr/x /etc/x /bin/x /dev/x; echo 1 > /proc/sys/kernel/sysrq").await;
    assert_ne!(writes.status, Status::Exited(0));
    assert_eq!(output(&sandbox, "touch /tmp/x ~/x /dev/shm/x x && echo ok").await, "ok\n");
    sandbox.stop().await;
}
