-- Workflows of pl-host in Neovim, 0.7 or newer: file type and language server.
-- `vim.g.pl_host_program` names the program if it is not on the PATH.

local group = vim.api.nvim_create_augroup("pl_host", {})

vim.api.nvim_create_autocmd({ "BufRead", "BufNewFile" }, {
  group = group,
  pattern = "*.mas",
  callback = function(event)
    vim.api.nvim_buf_set_option(event.buf, "filetype", "mas")
  end,
})

-- Neovim 0.7 has no `vim.lsp.start`, which shares a client between buffers.
local client

vim.api.nvim_create_autocmd("FileType", {
  group = group,
  pattern = "mas",
  callback = function(event)
    vim.api.nvim_buf_set_option(event.buf, "commentstring", "# %s")
    local config = {
      name = "pl-host",
      cmd = { vim.g.pl_host_program or "pl-host", "lsp" },
      root_dir = vim.fn.getcwd(),
    }
    if vim.lsp.start then
      vim.lsp.start(config)
    else
      client = client or vim.lsp.start_client(config)
      vim.lsp.buf_attach_client(event.buf, client)
    end
  end,
})
