//! Files of a session.

use crate::house::{House, request};
use axum::body::Body;
use axum::http::{Method, StatusCode};
use serde_json::json;

async fn put(house: &House, path: &str, body: &str) -> crate::house::Reply {
    house.send(request(Method::PUT, path, Body::from(body.to_owned()), &[])).await
}

#[tokio::test]
async fn files_are_written_listed_and_read() {
    let house = House::new();
    let session = house.session().await;
    let base = format!("/v1/sessions/{session}/files");
    assert_eq!(house.get(&base).await.ok()["data"], json!([]));
    assert!(!house.workspace(&session).exists(), "looking makes no folder");
    let written = put(&house, &format!("{base}/content?path=src/main.rs&mode=755"), "fn main() {}").await.ok();
    assert_eq!(
        (&written["path"], &written["type"], &written["size_bytes"], &written["mode"]),
        (&json!("src/main.rs"), &json!("file"), &json!(12), &json!(0o755))
    );
    assert_eq!(house.get(&base).await.ok()["data"][0]["type"], "folder");
    let list = house.get(&format!("{base}?path=src")).await.ok();
    assert_eq!(list["data"][0]["path"], "src/main.rs");
    let read = house.get(&format!("{base}/content?path=src/main.rs")).await;
    assert_eq!((read.status, read.bytes.as_slice()), (StatusCode::OK, b"fn main() {}".as_slice()));
    assert_eq!(house.get(&format!("{base}/content?path=src/other.rs")).await.code(), "file_not_found");
    assert_eq!(house.get(&format!("{base}/content?path=src")).await.code(), "not_a_file");
    assert_eq!(put(&house, &format!("{base}/content?path=x&mode=999"), "").await.code(), "invalid_query");
}

#[tokio::test]
async fn a_part_is_read_by_range_and_a_known_version_is_not_sent_again() {
    let house = House::new();
    let base = format!("/v1/sessions/{}/files/content?path=f", house.session().await);
    put(&house, &base, "0123456789").await.ok();
    let get = |headers: Vec<(&'static str, String)>| {
        let (house, base) = (&house, &base);
        async move {
            let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            house.call(Method::GET, base, None, &headers).await
        }
    };
    let part = get(vec![("range", "bytes=2-4".into())]).await;
    assert_eq!((part.status, part.bytes.as_slice()), (StatusCode::PARTIAL_CONTENT, b"234".as_slice()));
    assert_eq!((part.header("content-range"), part.header("content-length")), (Some("bytes 2-4/10"), Some("3")));
    let tag = part.header("etag").unwrap().to_owned();
    assert_eq!(get(vec![("if-none-match", tag.clone())]).await.status, StatusCode::NOT_MODIFIED);
    assert_eq!(get(vec![("range", "bytes=2-4".into()), ("if-range", "\"other\"".into())]).await.status, StatusCode::OK);
    let beyond = get(vec![("range", "bytes=10-".into())]).await;
    assert_eq!((beyond.code().as_str(), beyond.header("content-range")), ("range_not_satisfiable", Some("bytes */10")));
    put(&house, &base, "changed").await.ok();
    assert_eq!(get(vec![("if-none-match", tag)]).await.status, StatusCode::OK);
}

#[tokio::test]
async fn z_08_files_are_downloads_that_no_browser_shows_or_runs() {
    let house = House::new();
    let base = format!("/v1/sessions/{}/files/content?path=evil.html", house.session().await);
    put(&house, &base, "<script>alert(1)</script>").await.ok();
    let reply = house.get(&base).await;
    for (name, value) in [
        ("content-type", "application/octet-stream"),
        ("content-disposition", "attachment; filename*=UTF-8''evil.html"),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "sandbox; default-src 'none'"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        assert_eq!(reply.header(name), Some(value));
    }
    for destination in ["document", "iframe", "script", "worker", "serviceworker", "style", "object"] {
        let reply = house.call(Method::GET, &base, None, &[("sec-fetch-dest", destination)]).await;
        assert_eq!(reply.code(), "destination_not_allowed", "{destination}");
    }
    assert_eq!(house.call(Method::GET, &base, None, &[("sec-fetch-dest", "empty")]).await.status, StatusCode::OK);
}

#[tokio::test]
async fn no_path_and_no_link_leads_out_of_the_workspace() {
    let house = House::new();
    let session = house.session().await;
    let base = format!("/v1/sessions/{session}/files/content?path=");
    put(&house, &format!("{base}in"), "x").await.ok();
    std::fs::write(house.folder.path().join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink("../../secret", house.workspace(&session).join("link")).unwrap();
    for path in ["../../secret", "link", "/etc/passwd", "in/../../../secret", "..%2f..%2fsecret", "%00"] {
        let reply = house.get(&format!("{base}{path}")).await;
        assert_ne!(reply.status, StatusCode::OK, "{path}");
        assert!(reply.status.is_client_error(), "{path}: {}", String::from_utf8_lossy(&reply.bytes));
        let reply = put(&house, &format!("{base}{path}/f"), "x").await;
        assert!(
            reply.status.is_client_error() || path == "/etc/passwd",
            "{path}: {}",
            String::from_utf8_lossy(&reply.bytes)
        );
    }
    assert_eq!(std::fs::read_to_string(house.folder.path().join("secret")).unwrap(), "secret");
}

#[tokio::test]
async fn a_folder_goes_out_as_tar_and_comes_in_again() {
    let house = House::new();
    let (from, to) = (house.session().await, house.session().await);
    for path in ["a.txt", "d/b.txt"] {
        put(&house, &format!("/v1/sessions/{from}/files/content?path={path}"), path).await.ok();
    }
    let tar = house.get(&format!("/v1/sessions/{from}/files/archive")).await;
    assert_eq!((tar.status, tar.header("content-type")), (StatusCode::OK, Some("application/x-tar")));
    let sent = request(Method::PUT, &format!("/v1/sessions/{to}/files/archive?path=in"), Body::from(tar.bytes), &[]);
    house.send(sent).await.ok();
    let read = house.get(&format!("/v1/sessions/{to}/files/content?path=in/d/b.txt")).await;
    assert_eq!(read.bytes, b"d/b.txt");
    let broken = request(Method::PUT, &format!("/v1/sessions/{to}/files/archive"), Body::from(vec![7u8; 2_000]), &[]);
    assert_eq!(house.send(broken).await.code(), "archive_refused");
}

#[tokio::test]
async fn full_outputs_are_read_by_the_id_of_their_call() {
    let house = House::new();
    let session = house.session().await;
    let call = tenure_core::EventId::from_bits(5);
    let folder = house.folder.path().join("outputs").join(&session);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(format!("{call}.log")), "all of it").unwrap();
    let part = house
        .call(Method::GET, &format!("/v1/sessions/{session}/outputs/{call}"), None, &[("range", "bytes=-2")])
        .await;
    assert_eq!(part.bytes, b"it");
    for other in ["sevt_0", "..%2F..%2Fx", &tenure_core::EventId::from_bits(6).to_string()] {
        assert_eq!(house.get(&format!("/v1/sessions/{session}/outputs/{other}")).await.code(), "output_not_found");
    }
}

/// One entry of a tar: a header, which may lie about its size, and some bytes.
fn entry(name: &str, kind: u8, link: &str, size: u64, content: &[u8]) -> Vec<u8> {
    let mut header = [0u8; 512];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &name.as_bytes()[..name.len().min(100)]);
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{size:011o}\0").as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, &[kind]);
    put(157, link.as_bytes());
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let padding = content.len().next_multiple_of(512) - content.len();
    [header.as_slice(), content, &vec![0; padding]].concat()
}

#[tokio::test]
async fn z_42_archives_that_explode_or_lead_outside_are_refused_with_a_code() {
    let house = House::new();
    std::fs::write(house.folder.path().join("secret"), "secret").unwrap();
    let huge = 8 * 1024 * 1024 * 1024 - 1;
    let deep = "d/".repeat(45) + "f";
    let deeper = entry("x", b'L', "", 1_000, "d/".repeat(500).as_bytes());
    let deeper = [deeper, entry("x", b'0', "", 0, b"")].concat();
    let link = |to: &str, through: &str| [entry("l", b'2', to, 0, b""), entry(through, b'0', "", 1, b"x")].concat();
    let archives = [
        ("a file that says more than it holds", entry("f", b'0', "", huge, b"short")),
        ("a long name of gigabytes", entry("x", b'L', "", huge, b"short")),
        ("a header of gigabytes", entry("x", b'x', "", huge, b"short")),
        ("a sparse file of gigabytes", entry("f", b'S', "", 512, &[0; 512])),
        ("a path upwards", entry("../../secret", b'0', "", 1, b"x")),
        ("a path upwards inside", entry("a/../../../secret", b'0', "", 1, b"x")),
        ("a deep path", deeper),
        ("through a link upwards", link("../..", "l/secret")),
        ("through a link to the root", link("/", "l/tmp/x")),
        ("a hard link outside", entry("h", b'1', "../../secret", 0, b"")),
        ("not an archive", b"<html>".repeat(500)),
        ("a broken sum", {
            let mut bytes = entry("f", b'0', "", 1, b"x");
            bytes[0] = b'g';
            bytes
        }),
    ];
    for (what, bytes) in archives {
        let base = format!("/v1/sessions/{}/files", house.session().await);
        let reply = house.send(request(Method::PUT, &format!("{base}/archive"), Body::from(bytes), &[])).await;
        assert!(reply.status.is_client_error(), "{what}: {}", String::from_utf8_lossy(&reply.bytes));
        let code = reply.code();
        assert!(
            ["archive_refused", "path_refused", "request_too_large", "not_a_file"].contains(&code.as_str()),
            "{what}: {code}"
        );
        house.get(&base).await.ok();
    }
    assert_eq!(std::fs::read_to_string(house.folder.path().join("secret")).unwrap(), "secret");
    // The same form within the bounds is taken, and devices are left out.
    let base = format!("/v1/sessions/{}/files", house.session().await);
    let plain = [entry(&deep, b'0', "", 2, b"ok"), entry("dev", b'3', "", 0, b""), vec![0; 1024]].concat();
    let unpacked = house.send(request(Method::PUT, &format!("{base}/archive"), Body::from(plain), &[])).await.ok();
    assert_eq!((&unpacked["bytes"], &unpacked["skipped"]), (&json!(2), &json!(1)));
    assert_eq!(house.get(&format!("{base}/content?path={deep}")).await.bytes, b"ok");
}

#[tokio::test]
async fn odd_paths_are_refused_or_name_a_file_inside() {
    let house = House::new();
    let session = house.session().await;
    let base = format!("/v1/sessions/{session}/files");
    put(&house, &format!("{base}/content?path=d/f"), "inside").await.ok();
    std::os::unix::fs::symlink("/etc", house.workspace(&session).join("out")).unwrap();
    std::os::unix::fs::symlink("loop", house.workspace(&session).join("loop")).unwrap();
    fifo(&house.workspace(&session).join("fifo"));
    for path in [
        "",
        ".",
        "..",
        "/",
        "//",
        "d",
        "d/",
        "d/f/",
        "d/f/x",
        "d/..",
        "..%2f..%2fsecret",
        "%2e%2e/%2e%2e/secret",
        "%00",
        "d%00/f",
        "out/passwd",
        "out",
        "loop",
        "loop/x",
        "fifo",
        "%ff%fe",
        "%2fetc%2fpasswd",
        "d//f%2f..",
    ] {
        for place in ["content", "archive"] {
            let reply = house.get(&format!("{base}/{place}?path={path}")).await;
            let is_whole_folder = place == "archive" && reply.status == StatusCode::OK;
            assert!(is_whole_folder || reply.status.is_client_error() || reply.bytes == b"inside", "{place} {path}");
            assert!(!String::from_utf8_lossy(&reply.bytes).contains("root:"), "{place} {path}");
        }
        assert!(!house.get(&format!("{base}?path={path}")).await.status.is_server_error(), "list {path}");
    }
    for path in ["..", "out/x", "d/f/x", "%00", "loop", "d", ""] {
        let reply = put(&house, &format!("{base}/content?path={path}"), "x").await;
        // A link is replaced, not followed.
        assert!(reply.status.is_client_error() || path == "loop", "{path}: {}", String::from_utf8_lossy(&reply.bytes));
    }
    assert!(!std::path::Path::new("/etc/x").exists());
    let long = "n".repeat(300);
    assert!(put(&house, &format!("{base}/content?path={long}"), "x").await.status.is_client_error());
    let long = "n/".repeat(3_000);
    assert!(put(&house, &format!("{base}/content?path={long}f"), "x").await.status.is_client_error());
}

fn fifo(path: &std::path::Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}
