//! The conversation as a scenario sees it, from a prompt or from the body of a real request.

use crate::attachment::FAILED;
use serde_json::Value;
use std::collections::BTreeMap;
use tenure_core::{AssistantPart, Block, Message, Prompt, UserPart};

/// What was said so far, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conversation {
    /// Alternating; the newest is last.
    pub messages: Vec<Said>,
    /// Characters in all of it, for the count of tokens.
    pub size: usize,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// By the user's side.
    User {
        /// Its texts, joined.
        text: String,
        /// Results of calls.
        results: Vec<SaidResult>,
    },
    /// By the model.
    Assistant,
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaidResult {
    /// The tool that was called.
    pub tool: String,
    /// Its texts, joined.
    pub text: String,
    /// Whether it failed.
    pub is_error: bool,
}

impl Conversation {
    /// From what the engine sends.
    pub fn of_prompt(prompt: &Prompt) -> Self {
        let mut reader = Reader::default();
        for message in &prompt.messages {
            match message {
                Message::Assistant(parts) => {
                    for part in parts {
                        if let AssistantPart::ToolUse { call, name, .. } = part {
                            reader.called(call.to_string(), name.clone());
                        }
                    }
                    reader.assistant();
                }
                Message::User(parts) => {
                    for part in parts {
                        match part {
                            UserPart::Block(Block::Text(text)) => reader.text(text),
                            UserPart::Block(Block::Media { .. }) => {}
                            UserPart::Result { call, content, is_error } => {
                                let texts: Vec<&str> = content.iter().filter_map(text_of).collect();
                                reader.result(&call.to_string(), texts.join("\n"), *is_error);
                            }
                        }
                    }
                }
            }
        }
        reader.done
    }

    /// From the body of a Messages request.
    pub fn of_anthropic(body: &Value) -> Self {
        let mut reader = Reader::default();
        for message in items(&body["messages"]) {
            if let Some(text) = message["content"].as_str() {
                reader.text(text);
            }
            for block in items(&message["content"]) {
                match block["type"].as_str().unwrap_or_default() {
                    "tool_use" => reader.called(text(&block["id"]), text(&block["name"])),
                    "tool_result" => {
                        let texts: Vec<&str> =
                            items(&block["content"]).filter_map(|part| part["text"].as_str()).collect();
                        let said = block["content"].as_str().map_or_else(|| texts.join("\n"), str::to_owned);
                        reader.result(&text(&block["tool_use_id"]), said, block["is_error"] == true);
                    }
                    "text" if message["role"] == "user" => reader.text(block["text"].as_str().unwrap_or_default()),
                    _ => {}
                }
            }
            if message["role"] == "assistant" {
                reader.assistant();
            }
        }
        reader.done
    }

    /// From the body of a Chat Completions request.
    pub fn of_openai(body: &Value) -> Self {
        let mut reader = Reader::default();
        for message in items(&body["messages"]) {
            match message["role"].as_str().unwrap_or_default() {
                "assistant" => {
                    for call in items(&message["tool_calls"]) {
                        reader.called(text(&call["id"]), text(&call["function"]["name"]));
                    }
                    reader.assistant();
                }
                "tool" => {
                    reader.text_result(&text(&message["tool_call_id"]), &text(&message["content"]));
                }
                "user" => {
                    reader.text(message["content"].as_str().unwrap_or_default());
                    for part in items(&message["content"]) {
                        reader.text(part["text"].as_str().unwrap_or_default());
                    }
                }
                _ => {}
            }
        }
        reader.done
    }

    /// From the body of a Responses request.
    pub fn of_responses(body: &Value) -> Self {
        let mut reader = Reader::default();
        let mut is_answer = false;
        for item in items(&body["input"]) {
            let kind = item["type"].as_str().unwrap_or("message");
            let is_models = match kind {
                "function_call" => {
                    reader.called(text(&item["call_id"]), text(&item["name"]));
                    true
                }
                "function_call_output" => {
                    reader.text_result(&text(&item["call_id"]), &text(&item["output"]));
                    false
                }
                "message" if item["role"] != "assistant" => {
                    reader.text(item["content"].as_str().unwrap_or_default());
                    for part in items(&item["content"]) {
                        reader.text(part["text"].as_str().unwrap_or_default());
                    }
                    false
                }
                _ => true,
            };
            // Items of the model in a row are one answer.
            if is_models && !is_answer {
                reader.assistant();
            }
            is_answer = is_models;
        }
        reader.done
    }

    /// From the body of a Gemini request.
    pub fn of_gemini(body: &Value) -> Self {
        let mut reader = Reader::default();
        let mut calls = 0;
        let mut results = 0;
        for content in items(&body["contents"]) {
            for part in items(&content["parts"]) {
                if let Some(name) = part["functionCall"]["name"].as_str() {
                    calls += 1;
                    reader.called(calls.to_string(), name.to_owned());
                } else if let Some(response) = part["functionResponse"]["response"].as_object() {
                    // There need not be ids: results come in the order of the calls.
                    results += 1;
                    let said = response.get("output").or_else(|| response.get("error")).map(text).unwrap_or_default();
                    reader.result(&results.to_string(), said, response.contains_key("error"));
                } else if content["role"] == "user" {
                    reader.text(part["text"].as_str().unwrap_or_default());
                }
            }
            if content["role"] == "model" {
                reader.assistant();
            }
        }
        reader.done
    }

    /// From the body of an Ollama request.
    pub fn of_ollama(body: &Value) -> Self {
        let mut reader = Reader::default();
        for message in items(&body["messages"]) {
            let said = text(&message["content"]);
            match message["role"].as_str().unwrap_or_default() {
                "assistant" => reader.assistant(),
                "tool" => {
                    let name = text(&message["tool_name"]);
                    reader.called(name.clone(), name.clone());
                    reader.text_result(&name, &said);
                }
                "user" => reader.text(&said),
                _ => {}
            }
        }
        reader.done
    }
}

fn text_of(block: &Block) -> Option<&str> {
    match block {
        Block::Text(text) => Some(text),
        Block::Media { .. } => None,
    }
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[derive(Default)]
struct Reader {
    done: Conversation,
    tools: BTreeMap<String, String>,
}

impl Reader {
    fn called(&mut self, id: String, tool: String) {
        self.tools.insert(id, tool);
    }

    fn assistant(&mut self) {
        self.done.messages.push(Said::Assistant);
    }

    /// The open user message; messages of the user's side in a row are one.
    fn user(&mut self) -> (&mut String, &mut Vec<SaidResult>) {
        if !matches!(self.done.messages.last(), Some(Said::User { .. })) {
            self.done.messages.push(Said::User { text: String::new(), results: Vec::new() });
        }
        match self.done.messages.last_mut() {
            Some(Said::User { text, results }) => (text, results),
            Some(Said::Assistant) | None => unreachable!("a user message was pushed right above"),
        }
    }

    fn text(&mut self, piece: &str) {
        if piece.is_empty() {
            return;
        }
        self.done.size += piece.len();
        let (text, _) = self.user();
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(piece);
    }

    /// The result of a call in a dialect that says in text whether it failed.
    fn text_result(&mut self, call: &str, said: &str) {
        let failed = said.strip_prefix(FAILED);
        self.result(call, failed.unwrap_or(said).to_owned(), failed.is_some());
    }

    fn result(&mut self, call: &str, said: String, is_error: bool) {
        self.done.size += said.len();
        let tool = self.tools.get(call).cloned().unwrap_or_default();
        self.user().1.push(SaidResult { tool, text: said, is_error });
    }
}
