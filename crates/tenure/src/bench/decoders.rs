//! How fast streamed answers are read, per dialect, against a plain line splitter over the same bytes
//! in the same run.

use super::{Figure, allocations};
use anyhow::{Context, Result};
use serde_json::json;
use std::hint::black_box;
use std::io::BufRead;
use std::time::{Duration, Instant};
use tenure_core::{AnswerStop, Usage};
use tenure_model::script::{
    Input, Item, Pace, Piece, anthropic_stream, gemini_stream, ollama_stream, openai_stream, responses_stream,
};
use tenure_model::{DialectName, decoder};

/// Pieces of the text of the answer: about as many as a long answer has tokens.
const TEXT_PIECES: u32 = 8_000;

/// Pieces of the input of its call.
const INPUT_PIECES: u32 = 400;

/// Bytes that come at once, about what one read of a socket gives.
const CHUNK: usize = 4 * 1_024;

/// Times that each answer is read; what is compared is read in turns.
const ROUNDS: usize = 40;

pub(crate) fn run() -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (dialect, pieces) in answers() {
        let events = pieces.iter().filter(|piece| matches!(piece, Piece::Bytes(_))).count();
        let bytes: Vec<u8> = pieces
            .into_iter()
            .filter_map(|piece| match piece {
                Piece::Bytes(bytes) => Some(bytes),
                Piece::Wait(_) | Piece::Forever | Piece::Break => None,
            })
            .flatten()
            .collect();
        let (mut decoded, mut split) = (Vec::new(), Vec::new());
        decode(dialect, &bytes)?;
        for _ in 0..ROUNDS {
            split.push(throughput(bytes.len(), timed(|| split_lines(&bytes))?));
            decoded.push(throughput(bytes.len(), timed(|| decode(dialect, &bytes))?));
        }
        split.sort_by(f64::total_cmp);
        let params = json!({ "events": events, "bytes": bytes.len(), "chunk": CHUNK });
        let baseline = super::quantile(&split, 0.5);
        figures.push(Figure::new("decoders", dialect.name(), "MB/s", decoded).against(baseline).with(params.clone()));
        let (ended, allocations) = allocations::count(|| decode(dialect, &bytes));
        ended?;
        let (split, of_splitter) = allocations::count(|| split_lines(&bytes));
        split?;
        let per_event = |allocations: u64| allocations as f64 / events as f64;
        let name = format!("{dialect}, allocations per event");
        let figure = Figure::new("decoders", name, "allocations", vec![per_event(allocations)]);
        figures.push(figure.against(per_event(of_splitter)).with(params));
    }
    Ok(figures)
}

/// The same answer in the words of each dialect.
fn answers() -> Vec<(DialectName, Vec<Piece>)> {
    let pace = |pieces| Pace { pieces, delay: Duration::ZERO };
    let text = "The quick brown fox, said \"Zoë\", jumps\nover 12 lazy dogs. ".repeat(600);
    let input = json!({ "path": "a/b.txt", "content": "let x = \"1\";\n".repeat(200) });
    let items = [
        Item::Say { text, pace: pace(TEXT_PIECES) },
        Item::Call { name: "write".to_owned(), input: Input::Value(input), pace: pace(INPUT_PIECES) },
    ];
    let usage = Usage { input: 1_000, output: 9_000, cache_read: 0, cache_write: 0 };
    let stop = AnswerStop::ToolUse;
    vec![
        (DialectName::Anthropic, anthropic_stream("model", &items, stop, usage)),
        (DialectName::OpenAi, openai_stream("model", &items, stop, usage)),
        (DialectName::Responses, responses_stream("model", &items, stop, usage)),
        (DialectName::Gemini, gemini_stream(&items, stop, usage)),
        (DialectName::Ollama, ollama_stream("model", &items, stop, usage)),
    ]
}

fn decode(dialect: DialectName, bytes: &[u8]) -> Result<()> {
    let mut decoder = decoder(dialect, "bench/model").context("the dialect speaks HTTP")?;
    let failed = |failure: tenure_core::failure::Failure| anyhow::anyhow!("{dialect}: {}", failure.message);
    for chunk in bytes.chunks(CHUNK) {
        decoder.push(chunk, &mut |event| drop(black_box(event))).map_err(failed)?;
    }
    black_box(decoder.finish(&mut |event| drop(black_box(event))).map_err(failed)?);
    Ok(())
}

/// What any reader of these streams has to do at least: find the lines and hold each once.
fn split_lines(mut bytes: &[u8]) -> Result<()> {
    let mut line = Vec::new();
    while bytes.read_until(b'\n', &mut line)? > 0 {
        black_box(&line);
        line.clear();
    }
    Ok(())
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let started = Instant::now();
    work()?;
    Ok(started.elapsed())
}

fn throughput(bytes: usize, span: Duration) -> f64 {
    bytes as f64 / 1e6 / span.as_secs_f64()
}
