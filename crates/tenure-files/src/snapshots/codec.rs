//! The stored form of nodes and records: variable-length numbers and byte strings, nothing else.

use crate::error::{Error, Kind};

/// Writes values one after the other.
#[derive(Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push((value & 0x7f) as u8);
    }

    /// A number that may be negative, small ones short.
    pub(super) fn signed(&mut self, value: i64) {
        self.number(((value << 1) ^ (value >> 63)).cast_unsigned());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

/// Reads what [`Writer`] wrote; whatever it is given, it fails and does not panic.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn number(&mut self) -> Result<u64, Error> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.raw(1)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(damaged())
    }

    pub(super) fn signed(&mut self) -> Result<i64, Error> {
        let value = self.number()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    pub(super) fn small(&mut self) -> Result<u32, Error> {
        u32::try_from(self.number()?).map_err(|_| damaged())
    }

    /// A count of things of which each takes a byte at least, so that no allocation follows a lie.
    pub(super) fn count(&mut self) -> Result<usize, Error> {
        let count = usize::try_from(self.number()?).map_err(|_| damaged())?;
        if count > self.0.len() { Err(damaged()) } else { Ok(count) }
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Error> {
        let len = self.count()?;
        self.raw(len)
    }

    pub(super) fn raw(&mut self, len: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or_else(damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut array = [0; N];
        array.copy_from_slice(self.raw(N)?);
        Ok(array)
    }

    pub(super) fn end(&self) -> Result<(), Error> {
        if self.0.is_empty() { Ok(()) } else { Err(damaged()) }
    }
}

fn damaged() -> Error {
    Error::new(Kind::Damaged, "a stored object of a snapshot cannot be read")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_and_cut_or_longer_ones_are_errors() {
        let mut writer = Writer::default();
        writer.number(u64::MAX);
        writer.signed(i64::MIN);
        writer.signed(-1);
        writer.bytes(b"a\xff");
        for cut in 0..writer.0.len() {
            let mut reader = Reader(&writer.0[..cut]);
            let all = reader
                .number()
                .and_then(|_| reader.signed())
                .and_then(|_| reader.signed())
                .and_then(|_| reader.bytes().map(drop));
            assert!(all.is_err(), "{cut}");
        }
        let mut reader = Reader(&writer.0);
        assert_eq!(reader.number().ok(), Some(u64::MAX));
        assert_eq!(reader.signed().ok(), Some(i64::MIN));
        assert!(reader.end().is_err());
        assert_eq!(reader.signed().ok(), Some(-1));
        assert_eq!(reader.bytes().ok(), Some(&b"a\xff"[..]));
        assert!(reader.end().is_ok());
        assert!(Reader(&[0xff; 11]).number().is_err());
    }
}
