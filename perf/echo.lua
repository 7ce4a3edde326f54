-- wrk: POST a JSON body of 1 KiB. A static request: no Lua runs per request.
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"k":"' .. string.rep("x", 1024 - 8) .. '"}'
