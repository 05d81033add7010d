-- What the servers give to a script.
std = "lua51"
read_globals = { "redis", "cmsgpack", "struct", "cjson", "bit", "KEYS", "ARGV" }
max_line_length = 120
