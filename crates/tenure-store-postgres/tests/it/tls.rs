//! Encrypted connections: a listener ends the encryption in front of the real server, as proxies do.

use crate::server::server;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tenure_store::conformance::fixture::{create, deliver, hold, log, message, node};
use tenure_store::{Hint, Kind, Store};
use tenure_store_postgres::{Options, Postgres};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, UnixStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The bytes with which a client asks for encryption.
const ASKS: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

fn fixture(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name).display().to_string()
}

/// Ends encryption in front of the server's socket; gives its port and counts encrypted connections.
async fn front(socket: std::path::PathBuf, encrypts: bool) -> (u16, Arc<AtomicU32>) {
    let chain = vec![CertificateDer::from_pem_file(fixture("server.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(fixture("server.key")).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(chain, key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let count = Arc::new(AtomicU32::new(0));
    let counted = count.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (acceptor, socket, counted) = (acceptor.clone(), socket.clone(), counted.clone());
            tokio::spawn(async move {
                let mut asks = [0; 8];
                if stream.read_exact(&mut asks).await.is_err() || asks != ASKS {
                    return;
                }
                if !encrypts {
                    let _ = stream.write_all(b"N").await;
                    return;
                }
                stream.write_all(b"S").await.unwrap();
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                counted.fetch_add(1, Ordering::SeqCst);
                let mut server = UnixStream::connect(socket).await.unwrap();
                let _ = copy_bidirectional(&mut stream, &mut server).await;
            });
        }
    });
    (port, count)
}

async fn open(url: String) -> Result<Arc<Postgres>, tenure_store::Error> {
    Postgres::open(Options::parse(&url)?).await
}

#[tokio::test]
async fn connections_are_encrypted_and_the_certificate_is_checked() {
    let Some(server) = server() else { return };
    let name = server.database().await.rsplit('/').next().unwrap().to_owned();
    let (port, encrypted) = front(server.socket(), true).await;
    let url = |host: &str, root: &str| {
        format!("postgres://tenure@{host}:{port}/{name}?sslmode=require&sslrootcert={}", fixture(root))
    };
    let store = open(url("localhost", "ca.pem")).await.unwrap();
    let node = node(&*store).await;
    let mut hints = store.hints();
    let id = create(&*store, vec![message("go")]).await;
    let mut holder = hold(&*store, node).await;
    holder.say(&"over an encrypted line ".repeat(10_000));
    holder.park(&*store).await;
    assert_eq!(log(&*store, id).await.len(), 1);
    deliver(&*store, id, message("more")).await.unwrap();
    while !matches!(hints.recv().await.unwrap(), Hint::Session(session) if session == id) {}
    assert!(encrypted.load(Ordering::SeqCst) >= 1);
    store.close().await;

    // An authority that nobody trusts, a name that is not in the certificate, the machine's own authorities.
    for url in [
        url("localhost", "other-ca.pem"),
        url("127.0.0.1", "ca.pem"),
        format!("postgres://tenure:s3cret@localhost:{port}/{name}?sslmode=verify-full"),
    ] {
        let error = open(url.clone()).await.unwrap_err();
        assert!(error.message.contains("certificate"), "{url}: {error:?}");
        assert!(!format!("{error:?}").contains("s3cret"));
    }
}

#[tokio::test]
async fn a_server_that_does_not_encrypt_is_refused_and_wrong_files_are_named() {
    let Some(server) = server() else { return };
    let name = server.database().await.rsplit('/').next().unwrap().to_owned();
    let (port, _) = front(server.socket(), false).await;
    let base = format!("postgres://tenure@localhost:{port}/{name}");
    let error = open(format!("{base}?sslmode=require&sslrootcert={}", fixture("ca.pem"))).await.unwrap_err();
    assert!(error.message.contains("TLS"), "never in the clear: {error:?}");
    let far =
        [("postgres://t@db.example/t", true), ("postgres://t@127.0.0.1/t", false), ("postgres://t@localhost/t", false)];
    for (url, is_exposed) in far {
        assert_eq!(Options::parse(url).unwrap().is_exposed(), is_exposed, "{url}");
    }
    for (query, expected) in [
        ("sslmode=require&sslrootcert=/missing.pem", "cannot read /missing.pem"),
        (&*format!("sslmode=require&sslrootcert={}", fixture("server.key")), "no certificate authority"),
        ("sslrootcert=/missing.pem", "sslmode=require"),
        ("sslmode=maybe", "sslmode"),
    ] {
        let error = Options::parse(&format!("{base}?{query}")).unwrap_err();
        assert_eq!(error.kind, Kind::Broken);
        assert!(error.message.contains(expected), "{query}: {error}");
    }
}
