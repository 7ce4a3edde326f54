"""What a backend may answer, byte for byte, and what the client must see of it.

REFUSED: name -> steps. The client gets 502 upstream.protocol, and its own connection lives on.
WHOLE: name -> (steps, status, body, reused): the client gets exactly that, well framed, and
the backend's connection is used again or not.
CUT: name -> steps. The head was good and the body ends early or goes wrong: the client must be
able to tell, whatever version it speaks.

A step is bytes to send, "fin" (half-close), "close" or "reset".
"""

REFUSED, WHOLE, CUT = {}, {}, {}
OK = b"HTTP/1.1 200 OK\r\n"


def ok(*lines, body=b"", line=b"HTTP/1.1 200 OK"):
    return line + b"\r\n" + b"".join(text + b"\r\n" for text in lines) + b"\r\n" + body


def refuse(table, cases):
    for name, steps in cases.items():
        assert f"{table}.{name}" not in REFUSED, name
        REFUSED[f"{table}.{name}"] = steps if isinstance(steps, list) else [steps]


refuse("line", {name: ok(b"Content-Length: 2", body=b"ok", line=line) for name, line in {
    "version_2": b"HTTP/2.0 200 OK", "version_1_2": b"HTTP/1.2 200 OK", "version_0_9": b"HTTP/0.9 200 OK",
    "version_long": b"HTTP/1.10 200 OK", "lower_case": b"http/1.1 200 OK", "no_version": b"200 OK",
    "icy": b"ICY 200 OK", "four_digits": b"HTTP/1.1 2000 OK", "two_digits": b"HTTP/1.1 20 OK",
    "no_status": b"HTTP/1.1 OK", "status_word": b"HTTP/1.1 abc OK", "status_0": b"HTTP/1.1 000 OK",
    "status_99": b"HTTP/1.1 099 OK", "status_600": b"HTTP/1.1 600 OK", "status_999": b"HTTP/1.1 999 OK",
    "status_plus": b"HTTP/1.1 +20 OK", "status_minus": b"HTTP/1.1 -20 OK", "status_hex": b"HTTP/1.1 0c8 OK",
    "status_blank": b"HTTP/1.1 2 0 OK", "two_blanks": b"HTTP/1.1  200 OK", "tab": b"HTTP/1.1\t200 OK",
    "tab_behind_status": b"HTTP/1.1 200\tOK", "no_blank": b"HTTP/1.1 200OK", "blank_first": b" HTTP/1.1 200 OK",
    "nul_in_phrase": b"HTTP/1.1 200 O\0K", "escape_in_phrase": b"HTTP/1.1 200 \x1b[0m",
    "cr_in_phrase": b"HTTP/1.1 200 O\rK", "lf_in_phrase": b"HTTP/1.1 200 O\nK: 1",
    "request": b"GET / HTTP/1.1", "html": b"<html>", "empty_line": b"", "utf8_bom": b"\xef\xbb\xbfHTTP/1.1 200 OK",
    "only_version": b"HTTP/1.1", "version_blank": b"HTTP/1.1 ",
}.items()})
refuse("line", {
    "lf_only": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    "lf_behind_line": b"HTTP/1.1 200 OK\nContent-Length: 2\r\n\r\nok",
    "lf_at_the_end": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\nok",
    "cr_only": b"HTTP/1.1 200 OK\rContent-Length: 2\r\rok",
    "ssh": [b"SSH-2.0-OpenSSH_9.2\r\n", "fin"], "smtp": b"220 mail ESMTP\r\n", "nuls": bytes(100),
    "tls_alert": b"\x15\x03\x01\x00\x02\x02\x46", "http2_settings": b"\0\0\0\4\0\0\0\0\0",
    "endless": b"HTTP/1.1 200 " + b"x" * 70000,
})
refuse("field", {name: ok(field, b"Content-Length: 2", body=b"ok") for name, field in {
    "no_colon": b"X", "empty_name": b": x", "blank_before_colon": b"X : 1", "tab_before_colon": b"X\t: 1",
    "blank_inside": b"X Y: 1", "fold": b"X: 1\r\n 2", "fold_tab": b"X: 1\r\n\t2", "fold_first": b" X: 1",
    "nul": b"X: a\0b", "nul_in_name": b"X\0: 1", "escape": b"X: \x1b", "delete": b"X: \x7f", "bare_cr": b"X: a\rb",
    "bare_lf": b"X: a\nb", "cr_cr_lf": b"X: a\r", "obs_text_name": b"X\xe9: 1", "paren": b"X(): 1",
    "vertical_tab": b"X: a\x0bb", "form_feed": b"X: a\x0cb", "splitting": b"X: a\n\nHTTP/1.1 200 OK",
    "second_status_line": b"HTTP/1.1 200 OK",
}.items()})
refuse("field", {
    "too_many": ok(*[b"X: 1"] * 501, b"Content-Length: 0"), "far_too_many": ok(*[b"X: 1"] * 5000),
    "one_too_large": ok(b"X: " + b"a" * 62000), "many_large": ok(*[b"X: " + b"a" * 1000] * 70),
})
LENGTHS = {"plus": b"+2", "minus": b"-2", "list": b"2, 2", "list_tight": b"2,2", "empty": b"", "blank": b"  ",
           "hex": b"0x2", "word": b"two", "decimal_point": b"2.0", "exponent": b"2e0", "underscore": b"0_2",
           "overflow": b"18446744073709551618", "int64": b"9223372036854775808", "quoted": b'"2"',
           "semicolon": b"2;", "blank_inside": b"2 2", "octal": b"0o2", "thirty": b"9" * 30, "obs_text": b"2\xa0",
           "fullwidth": b"\xef\xbc\x92", "comma_first": b",2", "comma_last": b"2,", "nul": b"2\0", "tab": b"2\t2"}
refuse("length", {name: ok(b"Content-Length: " + v, body=b"ok") for name, v in LENGTHS.items()})
refuse("length", {
    "twice_equal": ok(b"Content-Length: 2", b"Content-Length: 2", body=b"ok"),
    "twice_unequal": ok(b"Content-Length: 2", b"Content-Length: 4", body=b"ok"),
    "with_coding": ok(b"Content-Length: 2", b"Transfer-Encoding: chunked", body=b"2\r\nok\r\n0\r\n\r\n"),
    "with_coding_behind": ok(b"Transfer-Encoding: chunked", b"Content-Length: 12", body=b"2\r\nok\r\n0\r\n\r\n"),
    "name_with_blank": ok(b"Content-Length : 2", body=b"ok"),
    "bad_on_304": ok(b"Content-Length: x", line=b"HTTP/1.1 304 Not Modified"),
    "bad_on_204": ok(b"Content-Length: -1", line=b"HTTP/1.1 204 No Content"),
})
refuse("coding", {name: ok(b"Transfer-Encoding: " + v, body=b"2\r\nok\r\n0\r\n\r\n") for name, v in {
    "gzip": b"gzip", "gzip_chunked": b"gzip, chunked", "identity": b"identity", "repeated": b"chunked, chunked",
    "not_last": b"chunked, gzip", "empty": b"", "comma": b"chunked,", "parameter": b"chunked;x", "quoted": b'"chunked"',
    "unknown": b"cow", "vertical_tab": b"\x0bchunked", "obs_text": b"chunked\xa0", "xchunked": b"xchunked",
}.items()})
refuse("coding", {
    "two_fields": ok(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
    "two_fields_gzip": ok(b"Transfer-Encoding: gzip", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
    "on_http10": ok(b"Transfer-Encoding: chunked", body=b"0\r\n\r\n", line=b"HTTP/1.0 200 OK"),
    "folded": ok(b"Transfer-Encoding:\r\n chunked", body=b"0\r\n\r\n"),
})
refuse("interim", {
    "101_unasked": ok(b"Connection: upgrade", b"Upgrade: websocket", line=b"HTTP/1.1 101 Switching Protocols"),
    "101_bare": ok(line=b"HTTP/1.1 101 Switching Protocols"),
    "too_many": ok(line=b"HTTP/1.1 103 Early Hints") * 17 + ok(b"Content-Length: 0"),
    "endless": ok(line=b"HTTP/1.1 100 Continue") * 2000,
    "malformed_final": ok(line=b"HTTP/1.1 103 Early Hints") + b"HTTP/1.1 x\r\n\r\n",
    "malformed_field": ok(b"X : 1", line=b"HTTP/1.1 103 Early Hints") + ok(b"Content-Length: 0"),
})
for protected in (b"Content-Type", b"Content-Encoding", b"Location", b"Date"):
    refuse("connection", {protected.decode(): ok(b"Connection: " + protected, b"Content-Length: 2", body=b"ok")})


def whole(name, steps, status=200, body=b"ok", reused=True):
    assert name not in WHOLE
    WHOLE[name] = (steps if isinstance(steps, list) else [steps], status, body, reused)


LEN = b"Content-Length: 2"
CODED = b"Transfer-Encoding: chunked"
whole("length", ok(LEN, body=b"ok"))
whole("length_zero", ok(b"Content-Length: 0"), body=b"")
whole("length_leading_zeros", ok(b"Content-Length: 002", body=b"ok"))
whole("chunked", ok(CODED, body=b"2\r\nok\r\n0\r\n\r\n"))
whole("chunked_case", ok(b"transfer-encoding: CHUNKED", body=b"2\r\nok\r\n0\r\n\r\n"))
whole("chunked_bytes", ok(CODED, body=b"1\r\no\r\n1\r\nk\r\n0\r\n\r\n"))
whole("chunked_extension", ok(CODED, body=b"2;a=b\r\nok\r\n0;c\r\n\r\n"))
whole("chunked_empty", ok(CODED, body=b"0\r\n\r\n"), body=b"")
whole("chunked_looks_like_end", ok(CODED, body=b"5\r\n0\r\n\r\n\r\n0\r\n\r\n"), body=b"0\r\n\r\n")
whole("until_close", [ok(body=b"ok"), "close"], reused=False)
whole("until_close_empty", [ok(), "close"], body=b"", reused=False)
whole("until_close_fin", [ok(body=b"ok"), "fin"], reused=False)
whole("until_close_10", [ok(body=b"ok", line=b"HTTP/1.0 200 OK"), "close"], reused=False)
whole("length_10", [ok(LEN, body=b"ok", line=b"HTTP/1.0 200 OK"), "close"], reused=False)
whole("length_10_open", ok(LEN, body=b"ok", line=b"HTTP/1.0 200 OK"), reused=False)
whole("keep_alive_10", ok(LEN, b"Connection: keep-alive", body=b"ok", line=b"HTTP/1.0 200 OK"))
whole("connection_close", ok(LEN, b"Connection: close", body=b"ok"), reused=False)
whole("connection_close_case", ok(LEN, b"connection: x, CLOSE", body=b"ok"), reused=False)
whole("connection_close_then_close", [ok(LEN, b"Connection: close", body=b"ok"), "close"], reused=False)
whole("no_phrase", ok(LEN, body=b"ok", line=b"HTTP/1.1 200 "))
whole("no_phrase_no_blank", ok(LEN, body=b"ok", line=b"HTTP/1.1 200"))
whole("odd_phrase", ok(LEN, body=b"ok", line=b"HTTP/1.1 200 \xe9t\xe9 \t (fine)"))
whole("status_299", ok(LEN, body=b"ok", line=b"HTTP/1.1 299 X"), 299)
whole("status_599", ok(LEN, body=b"ok", line=b"HTTP/1.1 599 X"), 599)
whole("status_204", ok(line=b"HTTP/1.1 204 No Content"), 204, b"")
whole("status_204_length", ok(b"Content-Length: 0", line=b"HTTP/1.1 204 No Content"), 204, b"")
whole("status_204_body", ok(LEN, body=b"ok", line=b"HTTP/1.1 204 No Content"), 204, b"", False)
whole("status_204_chunks", ok(CODED, body=b"2\r\nok\r\n0\r\n\r\n", line=b"HTTP/1.1 204 No Content"), 204, b"", False)
whole("status_304_length", ok(b"Content-Length: 5", line=b"HTTP/1.1 304 Not Modified"), 304, b"")
whole("status_304_body", ok(LEN, body=b"ok", line=b"HTTP/1.1 304 Not Modified"), 304, b"", False)
whole("status_205_length", ok(b"Content-Length: 0", line=b"HTTP/1.1 205 Reset Content"), 205, b"")
whole("bytes_behind", ok(LEN, body=b"ok!"), reused=False)
whole("crlf_behind", ok(LEN, body=b"ok\r\n"), reused=False)
whole("answer_behind", ok(LEN, body=b"ok") + ok(b"Content-Length: 6", body=b"forged"), reused=False)
whole("answer_behind_chunks", ok(CODED, body=b"2\r\nok\r\n0\r\n\r\n") + ok(LEN, body=b"xx"), reused=False)
whole("answer_behind_zero", ok(b"Content-Length: 0") + ok(LEN, body=b"xx"), body=b"", reused=False)
whole("interim_100", ok(line=b"HTTP/1.1 100 Continue") + ok(LEN, body=b"ok"))
whole("interim_102", ok(line=b"HTTP/1.1 102 Processing") + ok(LEN, body=b"ok"))
whole("interim_199", ok(line=b"HTTP/1.1 199 X") + ok(LEN, body=b"ok"))
whole("interim_sixteen", ok(line=b"HTTP/1.1 103 Early Hints") * 16 + ok(LEN, body=b"ok"))
whole("interim_longer_than_the_answer", ok(b"X: " + b"a" * 500, line=b"HTTP/1.1 103 X") + ok(LEN, body=b"ok"))
whole("interim_with_length", ok(b"Content-Length: 5", line=b"HTTP/1.1 103 X") + ok(LEN, body=b"ok"))
whole("interim_with_chunks", ok(CODED, line=b"HTTP/1.1 103 X") + ok(LEN, body=b"ok"))
whole("trailers", ok(CODED, body=b"2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n"))
whole("trailers_that_frame", ok(CODED, body=b"2\r\nok\r\n0\r\nContent-Length: 9\r\nSet-Cookie: a\r\n\r\n"))
whole("fields_500", ok(*[b"X: 1"] * 498, LEN, body=b"ok"))
whole("hop_fields", ok(LEN, b"Keep-Alive: timeout=5", b"Proxy-Connection: x", b"Upgrade: h2c", body=b"ok"))
whole("connection_named", ok(LEN, b"Connection: X-Hop", b"X-Hop: 1", body=b"ok"))
whole("obs_text", ok(LEN, b"X: \xe9", body=b"ok"))

CUT.update({name: steps if isinstance(steps, list) else [steps, "close"] for name, steps in {
    "length": ok(b"Content-Length: 5", body=b"ok"), "length_none": ok(b"Content-Length: 5"),
    "length_fin": [ok(b"Content-Length: 5", body=b"ok"), "fin"],
    "length_reset": [ok(b"Content-Length: 5", body=b"ok"), "reset"],
    "length_10": ok(b"Content-Length: 5", body=b"ok", line=b"HTTP/1.0 200 OK"),
    "length_large": ok(b"Content-Length: 9000000", body=b"x" * 300000),
    "chunk_missing": ok(CODED, body=b"2\r\nok\r\n"), "chunk_none": ok(CODED),
    "chunk_half": ok(CODED, body=b"9\r\nok"), "chunk_size_half": ok(CODED, body=b"2\r\nok\r\n1"),
    "chunk_no_last_line": ok(CODED, body=b"2\r\nok\r\n0\r\n"), "chunk_no_crlf": ok(CODED, body=b"2\r\nok"),
    "chunk_trailer_half": ok(CODED, body=b"2\r\nok\r\n0\r\nX: 1"),
    "chunk_reset": [ok(CODED, body=b"2\r\nok\r\n"), "reset"],
    "chunk_bad_size": [ok(CODED, body=b"2\r\nok\r\nx\r\n")],
    "chunk_sign": [ok(CODED, body=b"2\r\nok\r\n-1\r\n")], "chunk_prefix": [ok(CODED, body=b"2\r\nok\r\n0x0\r\n\r\n")],
    "chunk_blank": [ok(CODED, body=b"2\r\nok\r\n0 \r\n\r\n")],
    "chunk_lf": [ok(CODED, body=b"2\r\nok\r\n0\n\n")], "chunk_lf_behind_data": [ok(CODED, body=b"2\r\nok\n0\r\n\r\n")],
    "chunk_overflow": [ok(CODED, body=b"2\r\nok\r\nffffffffffffffff0\r\n")],
    "chunk_too_much": [ok(CODED, body=b"2\r\nokk\r\n0\r\n\r\n")],
    "chunk_extension_lf": [ok(CODED, body=b"2\r\nok\r\n0;a\nb\r\n\r\n")],
    "chunk_extension_long": [ok(CODED, body=b"2\r\nok\r\n0;" + b"x" * 2000 + b"\r\n\r\n")],
    "trailer_no_colon": [ok(CODED, body=b"2\r\nok\r\n0\r\nbad\r\n\r\n")],
    "trailer_fold": [ok(CODED, body=b"2\r\nok\r\n0\r\nX: 1\r\n 2\r\n\r\n")],
    "trailer_nul": [ok(CODED, body=b"2\r\nok\r\n0\r\nX: \0\r\n\r\n")],
    "trailer_lf": [ok(CODED, body=b"2\r\nok\r\n0\r\nX: 1\n\r\n")],
    "until_close_reset": [ok(body=b"ok" * 9), "reset"],
}.items()})

# cut in the head: one byte more would have changed its meaning, so nothing of it is shown
HALF = ok(b"X-One: 1", LEN)
HEAD_CUT = {f"at_{n}": [HALF[:n], "close"] for n in (0, 1, 4, 8, 9, 12, 13, 15, 16, 17, 20, 26, 27, 40, len(HALF) - 1)}
