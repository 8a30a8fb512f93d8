//! Zstandard, pushed in pieces: one block at a time, so that a few bytes cannot inflate unseen.
//!
//! Decides where frames and blocks end; the decoding itself is `ruzstd`'s. Window at most 8 MiB, as
//! RFC 9659 says for HTTP. Checksums are skipped.

use std::io::{self, Read, Write};

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Largest window of a frame, bytes.
const MAX_WINDOW: u64 = 8 << 20;

/// Largest block, bytes, by the format.
const MAX_BLOCK: usize = 128 << 10;

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    Frame,
    Block,
    /// Bytes of a frame that holds no data.
    Skip(u32),
}

/// A decoder that writes into `W`.
pub(super) struct ZstdDecoder<W> {
    frame: FrameDecoder,
    due: Due,
    checksum: bool,
    /// No frame was seen yet.
    fresh: bool,
    /// Less than one block.
    pending: Vec<u8>,
    out: W,
}

impl<W: Write> ZstdDecoder<W> {
    pub(super) fn new(out: W) -> Self {
        let mut frame = FrameDecoder::new();
        frame.set_max_window_size(MAX_WINDOW);
        Self { frame, due: Due::Frame, checksum: false, fresh: true, pending: Vec::new(), out }
    }

    /// The stream is over: gives back what is written into.
    pub(super) fn finish(self) -> io::Result<W> {
        if self.fresh || self.due != Due::Frame || !self.pending.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "zstd frame ends too early"));
        }
        Ok(self.out)
    }

    /// Takes one unit from the front of `bytes`; its length, or `None` if it is not all there.
    fn step(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        match self.due {
            Due::Frame => self.header(bytes),
            Due::Skip(left) => {
                let taken = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let left = left - u32::try_from(taken).unwrap_or(left);
                self.due = if left == 0 { Due::Frame } else { Due::Skip(left) };
                Ok((taken > 0).then_some(taken))
            }
            Due::Block => self.block(bytes),
        }
    }

    fn header(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        let Some((&magic, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
        if u32::from_le_bytes(magic) & 0xffff_fff0 == 0x184d_2a50 {
            let Some(&length) = rest.first_chunk::<4>() else { return Ok(None) };
            self.due = match u32::from_le_bytes(length) {
                0 => Due::Frame,
                length => Due::Skip(length),
            };
            return Ok(Some(8));
        }
        let Some(&descriptor) = rest.first() else { return Ok(None) };
        let single = descriptor & 0x20 != 0;
        let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
        let size = [usize::from(single), 2, 4, 8][usize::from(descriptor >> 6)];
        let length = 5 + usize::from(!single) + dictionary + size;
        let Some(mut header) = bytes.get(..length) else { return Ok(None) };
        self.frame.reset(&mut header).map_err(corrupt)?;
        self.checksum = descriptor & 4 != 0;
        (self.due, self.fresh) = (Due::Block, false);
        Ok(Some(length))
    }

    fn block(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        let Some(&[a, b, c]) = bytes.first_chunk::<3>() else { return Ok(None) };
        let header = u32::from_le_bytes([a, b, c, 0]);
        let (last, run) = (header & 1 == 1, header >> 1 & 3 == 1);
        let size = usize::try_from(header >> 3).unwrap_or(usize::MAX);
        if size > MAX_BLOCK {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "zstd block over 128 KiB"));
        }
        let checksum = if last && self.checksum { 4 } else { 0 };
        let length = 3 + if run { 1 } else { size } + checksum;
        let Some(mut block) = bytes.get(..length) else { return Ok(None) };
        self.frame
            .decode_blocks(&mut block, BlockDecodingStrategy::UptoBlocks(1))
            .map_err(corrupt)?;
        let mut room = [0; 8 << 10];
        loop {
            let count = self.frame.read(&mut room)?;
            if count == 0 {
                break;
            }
            self.out.write_all(&room[..count])?;
        }
        if last {
            self.due = Due::Frame;
        }
        Ok(Some(length))
    }
}

impl<W: Write> Write for ZstdDecoder<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut pending = std::mem::take(&mut self.pending);
        pending.extend_from_slice(bytes);
        let mut done = 0;
        while let Some(length) = self.step(&pending[done..])? {
            done += length;
        }
        pending.drain(..done);
        self.pending = pending;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn corrupt(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}
