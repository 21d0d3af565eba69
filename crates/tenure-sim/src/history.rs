//! What happened in a world, in order: the same lines for the same plan.

/// The lines, and a digest of them.
#[derive(Debug)]
pub(crate) struct History {
    lines: Vec<String>,
    digest: u64,
}

impl Default for History {
    fn default() -> Self {
        Self { lines: Vec::new(), digest: 0xcbf2_9ce4_8422_2325 }
    }
}

impl History {
    pub(crate) fn note(&mut self, line: String) {
        for byte in line.bytes().chain([b'\n']) {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.lines.push(line);
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    pub(crate) fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }
}
