//! The session with one editor: handshake, open documents, and dispatch of requests and notifications.

use std::collections::BTreeMap;
use std::path::Path;

use crossbeam_channel::{Sender, select};
use lsp_server::{Connection, Message, Notification, Request, RequestId, Response};
use lsp_types::notification::{
    DidChangeTextDocument, DidChangeWatchedFiles, DidCloseTextDocument, DidOpenTextDocument,
    DidSaveTextDocument, Exit, Initialized, Notification as NotificationType, PublishDiagnostics,
};
use lsp_types::request::{
    CodeActionRequest, Completion, DocumentHighlightRequest, DocumentSymbolRequest, Formatting,
    GotoDefinition, HoverRequest, Initialize, PrepareRenameRequest, References, RegisterCapability, Rename,
    Request as RequestType, Shutdown,
};
use lsp_types::{
    CodeActionKind, CodeActionOptions, CodeActionProviderCapability, CompletionOptions, Diagnostic,
    DidChangeWatchedFilesRegistrationOptions, FileSystemWatcher, GlobPattern, HoverProviderCapability,
    InitializeParams, InitializeResult, OneOf, PositionEncodingKind, PublishDiagnosticsParams, Registration,
    RegistrationParams, RenameOptions, SaveOptions, ServerCapabilities, ServerInfo,
    TextDocumentPositionParams, TextDocumentSyncCapability, TextDocumentSyncKind, TextDocumentSyncOptions,
    TextDocumentSyncSaveOptions, Uri,
};
use serde_json::{Value, json};

use crate::checker::{
    self, CheckHooks, CheckJob, CheckReport, Checker, CheckerMessage, OpenCatalog, UnknownNames,
};
use crate::documents::Document;
use crate::error::{Error, RequestError};
use crate::navigation::DocumentPosition;
use crate::uri::file_path;
use crate::{code_actions, completion, formatting, hover, symbols};

/// Parts of the server that the program provides.
pub struct ServerHooks {
    /// Opens the catalog of the plugins of a folder.
    pub catalog: OpenCatalog,
    /// Finds names of models and data sets that are wrong on every machine.
    pub unknown_names: UnknownNames,
    /// Formats a text. Returns `None` if the text is too broken to format.
    pub format: fn(&str) -> Option<String>,
}

/// Serves one editor over standard input and output until it sends `exit`.
///
/// # Errors
/// [`Error`] if the connection ends in any other way.
pub fn serve_stdio(hooks: ServerHooks) -> Result<(), Error> {
    let (connection, threads) = Connection::stdio();
    let result = serve(&connection, hooks);
    drop(connection);
    match result {
        // The reading thread has ended, so that joining doesn't wait for input.
        Ok(()) | Err(Error::Disconnected) => threads.join().map_err(Error::Transport).and(result),
        Err(error) => Err(error),
    }
}

/// Serves one editor over a connection until it sends `exit`.
///
/// # Errors
/// [`Error`] if the connection ends in any other way.
pub fn serve(connection: &Connection, hooks: ServerHooks) -> Result<(), Error> {
    let (id, params) = connection.initialize_start().map_err(|error| {
        if error.channel_is_disconnected() { Error::Disconnected } else { Error::Handshake(error) }
    })?;
    // The checks wait for an editor that does not read.
    let (report_sender, reports) = crossbeam_channel::bounded(1);
    let check_hooks = CheckHooks { open_catalog: hooks.catalog, unknown_names: hooks.unknown_names };
    let checker = checker::spawn(check_hooks, report_sender).map_err(Error::StartChecker)?;
    let mut server = Server {
        sender: &connection.sender,
        checker,
        format: hooks.format,
        documents: BTreeMap::new(),
        can_watch_files: can_watch_files(params),
    };
    server.send(Response::new_ok(id, initialize_result()))?;
    loop {
        select! {
            recv(connection.receiver) -> message => match message.map_err(|_| Error::Disconnected)? {
                Message::Request(Request { id, method, .. }) if method == Shutdown::METHOD => {
                    server.send(Response::new_ok(id, ()))?;
                    return server.wait_for_exit(connection);
                }
                Message::Request(request) => server.respond(request)?,
                Message::Notification(notification) if notification.method == Exit::METHOD => {
                    return Err(Error::ExitWithoutShutdown);
                }
                Message::Notification(notification) => server.handle_notification(notification)?,
                Message::Response(_) => {}
            },
            recv(reports) -> report => server.publish(report.map_err(|_| Error::CheckerStopped)?)?,
        }
    }
}

struct Server<'a> {
    sender: &'a Sender<Message>,
    checker: Checker,
    format: fn(&str) -> Option<String>,
    /// Open documents by URI.
    documents: BTreeMap<String, Document>,
    /// True if the editor can be asked to report changes of files.
    can_watch_files: bool,
}

impl Server<'_> {
    fn send(&self, message: impl Into<Message>) -> Result<(), Error> {
        self.sender.send(message.into()).map_err(|_| Error::OutputClosed)
    }

    fn respond(&self, request: Request) -> Result<(), Error> {
        let id = request.id.clone();
        self.send_result(id, self.handle_request(request))
    }

    fn send_result(&self, id: RequestId, result: Result<Value, RequestError>) -> Result<(), Error> {
        self.send(Response { id, response_result: result.map_err(Into::into) })
    }

    /// Refuses every request between `shutdown` and `exit`, as the protocol demands.
    fn wait_for_exit(&self, connection: &Connection) -> Result<(), Error> {
        for message in &connection.receiver {
            match message {
                Message::Request(request) => self.send_result(request.id, Err(RequestError::ShutDown))?,
                Message::Notification(notification) if notification.method == Exit::METHOD => return Ok(()),
                Message::Notification(_) | Message::Response(_) => {}
            }
        }
        Err(Error::Disconnected)
    }

    fn handle_request(&self, request: Request) -> Result<Value, RequestError> {
        let Request { method, params, .. } = request;
        match method.as_str() {
            Initialize::METHOD => Err(RequestError::AlreadyInitialized),
            HoverRequest::METHOD => self.handle::<HoverRequest>(
                params,
                |params| &params.text_document_position_params.text_document.uri,
                |document, params| {
                    Ok(hover::hover(&self.position(document, &params.text_document_position_params)))
                },
            ),
            Completion::METHOD => self.handle::<Completion>(
                params,
                |params| &params.text_document_position.text_document.uri,
                |document, params| {
                    let position = self.position(document, &params.text_document_position);
                    Ok(Some(completion::complete(&position).into()))
                },
            ),
            DocumentSymbolRequest::METHOD => self.handle::<DocumentSymbolRequest>(
                params,
                |params| &params.text_document.uri,
                |document, _| Ok(Some(symbols::symbols(document).into())),
            ),
            CodeActionRequest::METHOD => self.handle::<CodeActionRequest>(
                params,
                |params| &params.text_document.uri,
                |document, params| Ok(Some(code_actions::code_actions(document, &params))),
            ),
            Formatting::METHOD => self.handle::<Formatting>(
                params,
                |params| &params.text_document.uri,
                |document, _| Ok(formatting::format(document, self.format)),
            ),
            GotoDefinition::METHOD => self.handle::<GotoDefinition>(
                params,
                |params| &params.text_document_position_params.text_document.uri,
                |document, params| {
                    Ok(self.position(document, &params.text_document_position_params).definition())
                },
            ),
            References::METHOD => self.handle::<References>(
                params,
                |params| &params.text_document_position.text_document.uri,
                |document, params| {
                    let include_declaration = params.context.include_declaration;
                    Ok(self
                        .position(document, &params.text_document_position)
                        .references(include_declaration))
                },
            ),
            DocumentHighlightRequest::METHOD => self.handle::<DocumentHighlightRequest>(
                params,
                |params| &params.text_document_position_params.text_document.uri,
                |document, params| {
                    Ok(self.position(document, &params.text_document_position_params).highlights())
                },
            ),
            PrepareRenameRequest::METHOD => self.handle::<PrepareRenameRequest>(
                params,
                |params| &params.text_document.uri,
                |document, params| Ok(self.position(document, &params).prepare_rename()),
            ),
            Rename::METHOD => self.handle::<Rename>(
                params,
                |params| &params.text_document_position.text_document.uri,
                |document, params| {
                    let position = self.position(document, &params.text_document_position);
                    Ok(position.rename(&params.new_name)?)
                },
            ),
            _ => Err(RequestError::UnknownMethod(method)),
        }
    }

    /// Handles a request about one document. The result is `null` if the document is not open.
    fn handle<R: RequestType>(
        &self,
        params: Value,
        uri: impl Fn(&R::Params) -> &Uri,
        handler: impl FnOnce(&Document, R::Params) -> Result<R::Result, RequestError>,
    ) -> Result<Value, RequestError> {
        let params: R::Params = serde_json::from_value(params).map_err(RequestError::InvalidParams)?;
        let Some(document) = self.documents.get(uri(&params).as_str()) else { return Ok(Value::Null) };
        serde_json::to_value(handler(document, params)?).map_err(RequestError::Serialize)
    }

    fn position<'b>(
        &'b self,
        document: &'b Document,
        params: &'b TextDocumentPositionParams,
    ) -> DocumentPosition<'b> {
        let TextDocumentPositionParams { text_document, position } = params;
        DocumentPosition {
            document,
            uri: &text_document.uri,
            position: *position,
            documents: &self.documents,
        }
    }

    /// Handles a notification. Unknown notifications and invalid parameters are ignored: there is no response that
    /// could report them.
    fn handle_notification(&mut self, notification: Notification) -> Result<(), Error> {
        let Notification { method, params } = notification;
        match method.as_str() {
            Initialized::METHOD if self.can_watch_files => self.send(watch_files_request())?,
            DidOpenTextDocument::METHOD => {
                if let Some(params) = parse_params::<DidOpenTextDocument>(params) {
                    let opened = params.text_document;
                    let document = Document::new(opened.text, opened.version);
                    self.documents.insert(opened.uri.as_str().to_owned(), document);
                    self.check(&opened.uri);
                }
            }
            DidChangeTextDocument::METHOD => {
                if let Some(params) = parse_params::<DidChangeTextDocument>(params)
                    && let Some(document) = self.documents.get_mut(params.text_document.uri.as_str())
                {
                    document.apply_changes(params.content_changes, params.text_document.version);
                    self.check(&params.text_document.uri);
                }
            }
            DidCloseTextDocument::METHOD => {
                if let Some(params) = parse_params::<DidCloseTextDocument>(params)
                    && self.documents.remove(params.text_document.uri.as_str()).is_some()
                {
                    self.checker.send(CheckerMessage::Close(params.text_document.uri.clone()));
                    self.publish_diagnostics(params.text_document.uri, Vec::new(), None)?;
                }
            }
            DidSaveTextDocument::METHOD | DidChangeWatchedFiles::METHOD => self.check_all(),
            _ => {}
        }
        Ok(())
    }

    /// Schedules a check of a document on the checking thread.
    fn check(&self, uri: &Uri) {
        let Some(document) = self.documents.get(uri.as_str()) else { return };
        let path = file_path(uri);
        let name = path.as_deref().map_or_else(|| uri.as_str().to_owned(), |path| path.display().to_string());
        let folder = path.as_deref().and_then(Path::parent).unwrap_or(Path::new(".")).to_path_buf();
        let (text, version) = (document.text.clone(), document.version);
        self.checker.send(CheckerMessage::Check(CheckJob { uri: uri.clone(), version, folder, name, text }));
    }

    /// Schedules a check of every open document against the plugins that are now on the disk.
    fn check_all(&self) {
        self.checker.send(CheckerMessage::ReloadPlugins);
        for uri in self.documents.keys().filter_map(|uri| uri.parse().ok()) {
            self.check(&uri);
        }
    }

    /// Publishes the diagnostics of a check unless the document has changed or was closed since.
    fn publish(&mut self, report: CheckReport) -> Result<(), Error> {
        let Some(document) = self.documents.get_mut(report.uri.as_str()) else { return Ok(()) };
        let diagnostics = report.findings.iter().map(|finding| finding.diagnostic.clone()).collect();
        let (uri, version) = (report.uri.clone(), report.version);
        let is_current = version == document.version;
        // The plugin items of an older text still serve hovers and completions.
        document.report = Some(report);
        if is_current { self.publish_diagnostics(uri, diagnostics, Some(version)) } else { Ok(()) }
    }

    fn publish_diagnostics(
        &self,
        uri: Uri,
        diagnostics: Vec<Diagnostic>,
        version: Option<i32>,
    ) -> Result<(), Error> {
        let params = PublishDiagnosticsParams { uri, diagnostics, version };
        self.send(Notification::new(PublishDiagnostics::METHOD.to_owned(), params))
    }
}

/// Parameters of a notification. Returns `None` if they are invalid.
fn parse_params<N: NotificationType>(params: Value) -> Option<N::Params> {
    serde_json::from_value(params).ok()
}

fn can_watch_files(params: Value) -> bool {
    let watched_files = serde_json::from_value::<InitializeParams>(params)
        .ok()
        .and_then(|params| params.capabilities.workspace?.did_change_watched_files);
    watched_files.and_then(|capability| capability.dynamic_registration).unwrap_or_default()
}

fn initialize_result() -> InitializeResult {
    let sync = TextDocumentSyncOptions {
        open_close: Some(true),
        change: Some(TextDocumentSyncKind::INCREMENTAL),
        save: Some(TextDocumentSyncSaveOptions::SaveOptions(SaveOptions { include_text: Some(false) })),
        ..TextDocumentSyncOptions::default()
    };
    let capabilities = ServerCapabilities {
        position_encoding: Some(PositionEncodingKind::UTF16),
        text_document_sync: Some(TextDocumentSyncCapability::Options(sync)),
        hover_provider: Some(HoverProviderCapability::Simple(true)),
        completion_provider: Some(CompletionOptions {
            trigger_characters: Some([".", "=", ">"].map(str::to_owned).to_vec()),
            ..CompletionOptions::default()
        }),
        definition_provider: Some(OneOf::Left(true)),
        references_provider: Some(OneOf::Left(true)),
        document_highlight_provider: Some(OneOf::Left(true)),
        rename_provider: Some(OneOf::Right(RenameOptions {
            prepare_provider: Some(true),
            work_done_progress_options: Default::default(),
        })),
        document_symbol_provider: Some(OneOf::Left(true)),
        code_action_provider: Some(CodeActionProviderCapability::Options(CodeActionOptions {
            code_action_kinds: Some(vec![CodeActionKind::QUICKFIX]),
            ..CodeActionOptions::default()
        })),
        document_formatting_provider: Some(OneOf::Left(true)),
        ..ServerCapabilities::default()
    };
    let server_info =
        ServerInfo { name: "pl-host".to_owned(), version: Some(env!("CARGO_PKG_VERSION").to_owned()) };
    InitializeResult { capabilities, server_info: Some(server_info) }
}

/// Asks the editor to report changes of workflow and plugin files on the disk.
fn watch_files_request() -> Request {
    let watcher =
        FileSystemWatcher { glob_pattern: GlobPattern::String("**/*.{mas,wasm}".to_owned()), kind: None };
    let options = DidChangeWatchedFilesRegistrationOptions { watchers: vec![watcher] };
    let registration = Registration {
        id: "watch-files".to_owned(),
        method: DidChangeWatchedFiles::METHOD.to_owned(),
        register_options: Some(json!(options)),
    };
    let params = RegistrationParams { registrations: vec![registration] };
    Request::new("watch-files".to_owned().into(), RegisterCapability::METHOD.to_owned(), params)
}
