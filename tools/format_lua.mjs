// Format the scripts with StyLua: `node tools/format_lua.mjs --check` lists the files that are not formatted, without
// it they are written. The npm package holds StyLua as WebAssembly: no binary is downloaded.

import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Config, IndentType, LuaVersion, OutputVerification, QuoteStyle, formatCode } from '@johnnymorganz/stylua';

const SCRIPTS = fileURLToPath(new URL('../src/duly/_lua/', import.meta.url));

// `formatCode` consumes its configuration.
function configuration() {
  const config = Config.new();
  config.syntax = LuaVersion.Lua51;
  config.column_width = 120;
  config.indent_type = IndentType.Spaces;
  config.indent_width = 2;
  config.quote_style = QuoteStyle.AutoPreferSingle;
  return config;
}

const isCheck = process.argv.includes('--check');
const paths = readdirSync(SCRIPTS, { recursive: true }).filter((path) => path.endsWith('.lua'));
const changed = paths.filter((path) => {
  const text = readFileSync(SCRIPTS + path, 'utf8');
  const formatted = formatCode(text, configuration(), undefined, OutputVerification.None);
  if (!isCheck && formatted !== text) writeFileSync(SCRIPTS + path, formatted);
  return formatted !== text;
});
for (const path of changed) console.log(`src/duly/_lua/${path} ${isCheck ? 'is not formatted: run `make fix`' : 'formatted'}`);
process.exit(isCheck && changed.length > 0 ? 1 : 0);
