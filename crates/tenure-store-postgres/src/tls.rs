//! Encryption of connections to the database.
//!
//! `sslmode=require` in the address means that the server's certificate is checked, its name included:
//! encryption without it keeps nobody from sitting in between. `sslrootcert` names a file with the
//! authorities to trust instead of those of this machine, as managed databases give it.

use std::fs;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tenure_store::{Error, Kind};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as Encrypted;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Makes encrypted streams where the address wants them.
#[derive(Clone, Debug)]
pub(crate) struct Tls(Option<Arc<ClientConfig>>);

impl Tls {
    /// Nothing is encrypted.
    pub(crate) fn off() -> Self {
        Self(None)
    }

    /// Whether connections are encrypted.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Trusts the authorities in a PEM file, or those of this machine.
    pub(crate) fn trusting(file: Option<&str>) -> Result<Self, Error> {
        let wrong = |what: String| Error::new(Kind::Broken, what);
        let mut roots = RootCertStore::empty();
        match file {
            Some(file) => {
                let text =
                    fs::read(file).map_err(|error| wrong(format!("sslrootcert: cannot read {file}: {error}")))?;
                for certificate in CertificateDer::pem_slice_iter(&text) {
                    let added = certificate.map_err(|error| error.to_string());
                    let added = added.and_then(|found| roots.add(found).map_err(|error| error.to_string()));
                    added.map_err(|error| wrong(format!("sslrootcert: {file}: {error}")))?;
                }
            }
            // One that cannot be read is one authority less: whoever needs it is told so by the handshake.
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        if roots.is_empty() {
            let place = file.map_or("this machine".to_owned(), |file| format!("the file {file}"));
            return Err(wrong(format!("no certificate authority is in {place}; name a file with sslrootcert")));
        }
        let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(format!("prepare TLS: {error}")))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self(Some(Arc::new(config))))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Tls {
    type Stream = Stream<S>;
    type TlsConnect = Handshake;
    type Error = std::io::Error;

    fn make_tls_connect(&mut self, host: &str) -> Result<Handshake, std::io::Error> {
        Ok(Handshake { config: self.0.clone(), host: host.to_owned() })
    }
}

/// Encrypts one connection.
pub(crate) struct Handshake {
    config: Option<Arc<ClientConfig>>,
    host: String,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Handshake {
    type Stream = Stream<S>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Stream<S>, std::io::Error>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            // Only asked for where the address wants it.
            let config = self.config.ok_or(std::io::ErrorKind::Unsupported)?;
            let host = ServerName::try_from(self.host).map_err(std::io::Error::other)?;
            Ok(Stream(TlsConnector::from(config).connect(host, stream).await?))
        })
    }
}

/// An encrypted connection.
pub(crate) struct Stream<S>(Encrypted<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Stream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
