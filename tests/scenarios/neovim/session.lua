-- Edits the workflow $MAS with the language server and writes what Neovim got from it to $REPORT.

local WAIT = 60000

vim.cmd("edit " .. vim.env.MAS)
local report = { filetype = vim.bo.filetype }

local function request(method, line, character)
  local params = {
    textDocument = vim.lsp.util.make_text_document_params(),
    position = { line = line, character = character },
    options = { tabSize = 2, insertSpaces = true },
  }
  local answers = vim.lsp.buf_request_sync(0, method, params, WAIT) or {}
  for _, answer in pairs(answers) do
    return answer.result
  end
end

vim.wait(WAIT, function()
  return #vim.diagnostic.get(0) > 0
end, 20)
report.diagnostics = vim.tbl_map(function(found)
  return { line = found.lnum, message = found.message }
end, vim.diagnostic.get(0))

-- The misspelt key is on the last line.
local last = vim.api.nvim_buf_line_count(0) - 1
vim.api.nvim_buf_set_lines(0, last, -1, false, { "train {steps=3}" })
vim.wait(WAIT, function()
  return #vim.diagnostic.get(0) == 0
end, 20)
report.left = #vim.diagnostic.get(0)

local hover = request("textDocument/hover", last, 8)
report.hover = hover and hover.contents.value or ""

local items = request("textDocument/completion", last, 7) or {}
report.completions = vim.tbl_map(function(item)
  return item.label
end, items.items or items)

vim.lsp.util.apply_text_edits(request("textDocument/formatting", 0, 0) or {}, vim.api.nvim_get_current_buf(), "utf-16")
report.lines = vim.api.nvim_buf_get_lines(0, last, -1, false)

vim.fn.writefile({ vim.fn.json_encode(report) }, vim.env.REPORT)
vim.cmd("qall!")
