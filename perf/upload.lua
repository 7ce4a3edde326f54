-- wrk: POST a body of 1 MiB. A static request: no Lua runs per request.
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/octet-stream"
wrk.body = string.rep("x", 1024 * 1024)
