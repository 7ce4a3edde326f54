-- wrk: GET through 100 of 10,000 routes in turn, written beforehand.
local requests, turn = {}, 0
function init()
    for n = 1, 100 do
        requests[n] = wrk.format("GET", "/r/" .. (n * 7919 % 10000) .. "/small")
    end
end
function request()
    turn = turn % 100 + 1
    return requests[turn]
end
