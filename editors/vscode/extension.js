// Starts `pl-host lsp` and connects the editor to it. The server provides everything except highlighting.

const vscode = require('vscode');
const { LanguageClient } = require('vscode-languageclient/node');

/** @type {LanguageClient | undefined} */
let client;

async function start() {
  const settings = vscode.workspace.getConfiguration('pl-host');
  const server = {
    command: settings.get('path') || 'pl-host',
    args: ['lsp'],
  };
  client = new LanguageClient('pl-host', 'pl-host', server, {
    documentSelector: [{ language: 'mas' }],
  });
  try {
    await client.start();
  } catch (error) {
    client = undefined;
    // A program that is missing rejects with nothing: the client has shown the reason.
    const reason = error?.message ? `: ${error.message}` : '';
    const choice = await vscode.window.showErrorMessage(
      `\`${server.command} lsp\` does not start${reason}. Set "pl-host.path" to the pl-host program.`,
      'Open settings',
    );
    if (choice) {
      await vscode.commands.executeCommand('workbench.action.openSettings', 'pl-host.path');
    }
  }
}

async function stop() {
  const running = client;
  client = undefined;
  await running?.stop();
}

async function restart() {
  await stop();
  await start();
}

/** @param {vscode.ExtensionContext} context */
async function activate(context) {
  context.subscriptions.push(
    vscode.commands.registerCommand('pl-host.restart', restart),
    vscode.workspace.onDidChangeConfiguration((change) => {
      if (change.affectsConfiguration('pl-host.path')) void restart();
    }),
  );
  // The server loads the plugins that a workflow names, so it only starts in trusted folders.
  if (vscode.workspace.isTrusted) {
    await start();
  } else {
    context.subscriptions.push(vscode.workspace.onDidGrantWorkspaceTrust(() => void start()));
  }
}

module.exports = { activate, deactivate: stop };
