//! The talk with the editor: start and stop, open documents, and who answers what.

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender};

use lsp_types::notification::{
    DidChangeTextDocument, DidChangeWatchedFiles, DidCloseTextDocument, DidOpenTextDocument,
    DidSaveTextDocument, Notification, PublishDiagnostics,
};
use lsp_types::request::{
    CodeActionRequest, Completion, DocumentHighlightRequest, DocumentSymbolRequest, Formatting,
    GotoDefinition, HoverRequest, PrepareRenameRequest, References, Rename, Request,
};
use lsp_types::{PublishDiagnosticsParams, TextDocumentPositionParams, Uri};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::checker::{Job, Order, Report};
use crate::documents::{Document, path};
use crate::names::Place;
use crate::wire::{ErrorCode, Incoming};
use crate::{Error, Host, actions, checker, completion, formatting, hover, symbols, wire};

/// How a talk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The editor said that it would.
    InOrder,
    /// The editor left, or asked to exit without having asked to shut down.
    Abruptly,
}

/// What the answering thread waits for.
enum Event {
    Message(Incoming),
    Checked(Report),
    /// Nothing more comes from the editor.
    End(Result<(), Error>),
}

/// An answer, or why there is none.
type Answer = Result<Value, (ErrorCode, String)>;

/// Talks with one editor until it leaves.
///
/// # Errors
/// A pipe that breaks, and a header that can't be read.
pub fn serve(input: impl Read + Send + 'static, output: impl Write, host: Host) -> Result<Ended, Error> {
    let (events, received) = std::sync::mpsc::channel();
    let reports = events.clone();
    let report = move |report| reports.send(Event::Checked(report)).is_ok();
    let checker = checker::start(host.catalog, report).map_err(Error::Thread)?;
    let reader = std::thread::Builder::new().name("read".to_owned());
    reader.spawn(move || read(input, &events)).map_err(Error::Thread)?;
    let server = Server {
        output,
        checker,
        format: host.format,
        documents: BTreeMap::new(),
        phase: Phase::New,
        watches: false,
    };
    server.run(&received)
}

fn read(input: impl Read, events: &Sender<Event>) {
    let mut input = BufReader::new(input);
    loop {
        let event = match wire::read(&mut input) {
            Ok(Some(message)) => Event::Message(message),
            Ok(None) => Event::End(Ok(())),
            Err(error) => Event::End(Err(error)),
        };
        let last = matches!(event, Event::End(_));
        if events.send(event).is_err() || last {
            return;
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// Before `initialize`.
    New,
    Running,
    /// Behind `shutdown`.
    Down,
}

struct Server<W> {
    output: W,
    checker: Sender<Order>,
    format: fn(&str) -> Option<String>,
    /// By address.
    documents: BTreeMap<String, Document>,
    phase: Phase,
    /// Whether the editor can be asked to watch files.
    watches: bool,
}

impl<W: Write> Server<W> {
    fn run(mut self, events: &Receiver<Event>) -> Result<Ended, Error> {
        // The reading thread says when it ends, so that there is always a next event until then.
        while let Ok(event) = events.recv() {
            match event {
                Event::Message(Incoming::Request { id, method, params }) => {
                    let answer = self.answer(&method, params);
                    wire::write(&mut self.output, &wire::answer(&id, answer))?;
                }
                Event::Message(Incoming::Notification { method, .. }) if method == "exit" => {
                    let in_order = self.phase == Phase::Down;
                    return Ok(if in_order { Ended::InOrder } else { Ended::Abruptly });
                }
                Event::Message(Incoming::Notification { method, params }) => self.notice(&method, params)?,
                Event::Message(Incoming::Broken(code, why)) => {
                    wire::write(&mut self.output, &wire::answer(&Value::Null, Err((code, why))))?;
                }
                Event::Message(Incoming::Response) => {}
                Event::Checked(report) => self.publish(report)?,
                Event::End(result) => return result.map(|()| Ended::Abruptly),
            }
        }
        Ok(Ended::Abruptly)
    }

    fn answer(&mut self, method: &str, params: Value) -> Answer {
        match (self.phase, method) {
            (Phase::New, "initialize") => {
                let watching = "/capabilities/workspace/didChangeWatchedFiles/dynamicRegistration";
                self.watches = params.pointer(watching) == Some(&Value::Bool(true));
                self.phase = Phase::Running;
                return Ok(capabilities());
            }
            (Phase::New, _) => {
                return Err((ErrorCode::NotInitialized, "`initialize` comes first".to_owned()));
            }
            (Phase::Down, _) => {
                return Err((ErrorCode::InvalidRequest, "the server is shut down".to_owned()));
            }
            (Phase::Running, "initialize") => {
                return Err((ErrorCode::InvalidRequest, "`initialize` comes once".to_owned()));
            }
            (Phase::Running, "shutdown") => {
                self.phase = Phase::Down;
                return Ok(Value::Null);
            }
            (Phase::Running, _) => {}
        }
        match method {
            HoverRequest::METHOD => self.at::<HoverRequest>(
                params,
                |params| &params.text_document_position_params.text_document.uri,
                |document, params| hover::hover(&self.place(document, &params.text_document_position_params)),
            ),
            Completion::METHOD => self.at::<Completion>(
                params,
                |params| &params.text_document_position.text_document.uri,
                |document, params| {
                    Some(completion::complete(document, params.text_document_position.position).into())
                },
            ),
            DocumentSymbolRequest::METHOD => self.at::<DocumentSymbolRequest>(
                params,
                |params| &params.text_document.uri,
                |document, _| Some(symbols::symbols(document).into()),
            ),
            CodeActionRequest::METHOD => self.at::<CodeActionRequest>(
                params,
                |params| &params.text_document.uri,
                |document, params| Some(actions::actions(document, &params)),
            ),
            Formatting::METHOD => {
                let format = self.format;
                self.at::<Formatting>(
                    params,
                    |params| &params.text_document.uri,
                    |document, _| formatting::format(document, format),
                )
            }
            GotoDefinition::METHOD => self.at::<GotoDefinition>(
                params,
                |params| &params.text_document_position_params.text_document.uri,
                |document, params| self.place(document, &params.text_document_position_params).definition(),
            ),
            References::METHOD => self.at::<References>(
                params,
                |params| &params.text_document_position.text_document.uri,
                |document, params| {
                    let declaration = params.context.include_declaration;
                    self.place(document, &params.text_document_position).references(declaration)
                },
            ),
            DocumentHighlightRequest::METHOD => self.at::<DocumentHighlightRequest>(
                params,
                |params| &params.text_document_position_params.text_document.uri,
                |document, params| self.place(document, &params.text_document_position_params).highlights(),
            ),
            PrepareRenameRequest::METHOD => self.at::<PrepareRenameRequest>(
                params,
                |params| &params.text_document.uri,
                |document, params| self.place(document, &params).renamable(),
            ),
            Rename::METHOD => self.renamed(params),
            _ => Err((ErrorCode::MethodNotFound, format!("`{method}` is not known here"))),
        }
    }

    /// A place in a document, among all that are open.
    fn place<'a>(&'a self, document: &'a Document, at: &'a TextDocumentPositionParams) -> Place<'a> {
        let TextDocumentPositionParams { text_document, position } = at;
        Place { document, uri: &text_document.uri, position: *position, documents: &self.documents }
    }

    fn renamed(&self, params: Value) -> Answer {
        let mut refused = None;
        let answer = self.at::<Rename>(
            params,
            |params| &params.text_document_position.text_document.uri,
            |document, params| {
                let place = self.place(document, &params.text_document_position);
                place.rename(&params.new_name).unwrap_or_else(|why| {
                    refused = Some(why);
                    None
                })
            },
        );
        match refused {
            Some(why) => Err((ErrorCode::RequestFailed, why)),
            None => answer,
        }
    }

    /// Answers a request about one document. Of a document that is not open nothing is known.
    fn at<R: Request>(
        &self,
        params: Value,
        uri: impl Fn(&R::Params) -> &Uri,
        answer: impl FnOnce(&Document, R::Params) -> R::Result,
    ) -> Answer
    where
        R::Params: DeserializeOwned,
        R::Result: Serialize,
    {
        let params: R::Params =
            serde_json::from_value(params).map_err(|error| (ErrorCode::InvalidParams, error.to_string()))?;
        let Some(document) = self.documents.get(uri(&params).as_str()) else { return Ok(Value::Null) };
        serde_json::to_value(answer(document, params))
            .map_err(|error| (ErrorCode::Internal, error.to_string()))
    }

    fn notice(&mut self, method: &str, params: Value) -> Result<(), Error> {
        if self.phase != Phase::Running {
            return Ok(());
        }
        match method {
            "initialized" if self.watches => {
                wire::write(&mut self.output, &watch())?;
            }
            DidOpenTextDocument::METHOD => {
                if let Some(params) = given::<DidOpenTextDocument>(params) {
                    let opened = params.text_document;
                    let document = Document::new(opened.text, opened.version);
                    self.documents.insert(opened.uri.as_str().to_owned(), document);
                    self.check(&opened.uri);
                }
            }
            DidChangeTextDocument::METHOD => {
                if let Some(params) = given::<DidChangeTextDocument>(params)
                    && let Some(document) = self.documents.get_mut(params.text_document.uri.as_str())
                {
                    document.change(params.content_changes, params.text_document.version);
                    self.check(&params.text_document.uri);
                }
            }
            DidCloseTextDocument::METHOD => {
                if let Some(params) = given::<DidCloseTextDocument>(params)
                    && self.documents.remove(params.text_document.uri.as_str()).is_some()
                {
                    if let Some(path) = path(&params.text_document.uri) {
                        let _ = self.checker.send(Order::Close(path));
                    }
                    // What is closed has no mistakes to show.
                    self.show(params.text_document.uri, Vec::new(), None)?;
                }
            }
            DidSaveTextDocument::METHOD | DidChangeWatchedFiles::METHOD => self.check_all(),
            // Whatever else an editor says is nothing that the server acts on.
            _ => {}
        }
        Ok(())
    }

    /// Has a document checked, soon and elsewhere.
    fn check(&self, uri: &Uri) {
        let Some(document) = self.documents.get(uri.as_str()) else { return };
        let path = path(uri);
        let name = path.as_deref().map_or_else(|| uri.as_str().to_owned(), |path| path.display().to_string());
        let folder = path.as_deref().and_then(Path::parent).unwrap_or(Path::new(".")).to_path_buf();
        let (text, version) = (document.text.clone(), document.version);
        // Where the thread has ended there is nothing left to tell.
        let _ = self.checker.send(Order::Check(Job { uri: uri.clone(), version, folder, name, text }));
    }

    /// Checks all that is open, with the plugins as they are now.
    fn check_all(&self) {
        let _ = self.checker.send(Order::Reopen);
        for address in self.documents.keys() {
            if let Ok(uri) = address.parse() {
                self.check(&uri);
            }
        }
    }

    /// Shows what a check found, unless the text has changed since or was closed.
    fn publish(&mut self, report: Report) -> Result<(), Error> {
        let Some(document) = self.documents.get_mut(report.uri.as_str()) else { return Ok(()) };
        let diagnostics = report.found.iter().map(|found| found.diagnostic.clone()).collect();
        let (uri, version) = (report.uri.clone(), report.version);
        let current = version == document.version;
        // Of an older text, what the plugins offer is still worth knowing.
        document.report = Some(report);
        if current { self.show(uri, diagnostics, Some(version)) } else { Ok(()) }
    }

    fn show(
        &mut self,
        uri: Uri,
        diagnostics: Vec<lsp_types::Diagnostic>,
        version: Option<i32>,
    ) -> Result<(), Error> {
        let params = json!(PublishDiagnosticsParams { uri, diagnostics, version });
        wire::write(&mut self.output, &wire::notification(PublishDiagnostics::METHOD, params))
    }
}

/// What a notification says; none where it can't be understood, since nobody waits for an answer.
fn given<N: Notification>(params: Value) -> Option<N::Params> {
    serde_json::from_value(params).ok()
}

/// What the server can do.
fn capabilities() -> Value {
    json!({
        "serverInfo": { "name": "pl-host", "version": env!("CARGO_PKG_VERSION") },
        "capabilities": {
            "positionEncoding": "utf-16",
            "textDocumentSync": { "openClose": true, "change": 2, "save": { "includeText": false } },
            "hoverProvider": true,
            "completionProvider": { "triggerCharacters": [".", "=", ">"] },
            "definitionProvider": true,
            "referencesProvider": true,
            "documentHighlightProvider": true,
            "renameProvider": { "prepareProvider": true },
            "documentSymbolProvider": true,
            "codeActionProvider": { "codeActionKinds": ["quickfix"] },
            "documentFormattingProvider": true,
        },
    })
}

/// Asks the editor to say when a plugin or another workflow changes on the disk.
fn watch() -> Value {
    json!({
        "jsonrpc": "2.0", "id": "watch", "method": "client/registerCapability",
        "params": { "registrations": [{
            "id": "files", "method": DidChangeWatchedFiles::METHOD,
            "registerOptions": { "watchers": [{ "globPattern": "**/*.{mas,wasm}" }] },
        }] },
    })
}
