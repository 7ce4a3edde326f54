"""What a client may send, byte for byte, and what must become of it.

To add a case, add a line to one of the tables. Names are made of the table's and the line's.

REFUSED: name -> (bytes, status, reason). The answer is problem+json with that reason and
`Connection: close`, the connection ends, and not one byte reaches the backend.
PASSED: name -> (bytes, start line, fields, body): exactly that reaches the backend, besides
the fields that the gateway adds. `fields` are (name, value) without those.
"""

H = b"Host: test\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: test\r\n\r\n"
REFUSED, PASSED = {}, {}


def refuse(table, status, reason, cases):
    for name, data in cases.items():
        assert f"{table}.{name}" not in REFUSED, name
        REFUSED[f"{table}.{name}"] = (data, status, reason)


def get(*lines, line=b"GET / HTTP/1.1", host=H):
    return line + b"\r\n" + host + b"".join(text + b"\r\n" for text in lines) + b"\r\n"


def post(*lines, body=b"", line=b"POST / HTTP/1.1", host=H):
    return get(*lines, line=line, host=host) + body


def passes(name, data, start="GET / HTTP/1.1", fields=(), body=b"", host="test"):
    assert name not in PASSED
    PASSED[name] = (data, start, [("Host", host), *fields], body)


# ---- Content-Length: one plain decimal, or nothing (RFC 9112 6.3)

LENGTHS = {
    "plus": b"+3", "minus": b"-3", "minus_zero": b"-0", "blank_inside": b"3 0", "list": b"3, 3",
    "list_differs": b"3, 4", "list_tight": b"3,3", "empty": b"", "blank": b"   ", "hex": b"0x3",
    "hex_digit": b"a", "octal_prefix": b"0o3", "decimal_point": b"3.0", "exponent": b"3e0",
    "underscore": b"1_0", "comma_first": b",3", "comma_last": b"3,", "quoted": b'"3"',
    "semicolon": b"3;", "parameter": b"3;x=1", "word": b"three", "chunked": b"chunked",
    "int64_max_plus_1": b"9223372036854775808", "uint64_max": b"18446744073709551615",
    "uint64_max_plus_4": b"18446744073709551620", "uint32_twice": b"42949672964294967299",
    "thirty_digits": b"9" * 30, "thousand_digits": b"1" * 1000, "thousand_zeros": b"0" * 1000 + b"3",
    "tab_inside": b"3\t3", "obs_text": b"3\xa0", "fullwidth": "\uff13".encode(),
    "arabic": "\u0663".encode(), "percent": b"%33", "nbsp_first": b"\xc2\xa03", "slash": b"3/3",
    "colon": b":3", "apostrophe": b"3'", "null_word": b"null", "true": b"true", "star": b"*",
}
refuse("length", 400, "bad_request.content_length",
       {name: post(b"Content-Length: " + value, body=b"abc") for name, value in LENGTHS.items()})
refuse("length", 400, "bad_request.content_length", {
    "twice_equal": post(b"Content-Length: 3", b"Content-Length: 3", body=b"abc"),
    "twice_unequal": post(b"Content-Length: 3", b"Content-Length: 0", body=b"abc"),
    "twice_apart": post(b"Content-Length: 0", b"X: 1", b"content-length: 40", body=SMUGGLED),
    "thrice": post(*[b"Content-Length: 3"] * 3, body=b"abc"),
    "on_get": get(b"Content-Length: x"),
    "on_http10": post(b"Content-Length: -1", line=b"POST / HTTP/1.0"),
})
refuse("length", 400, "bad_request.field_value", {
    "vertical_tab": post(b"Content-Length: \x0b3", body=b"abc"),
    "form_feed": post(b"Content-Length: 3\x0c", body=b"abc"),
    "nul": post(b"Content-Length: 3\0", body=b"abc"),
    "delete": post(b"Content-Length: 3\x7f", body=b"abc"),
})
refuse("length", 400, "bad_request.field_name", {
    "name_with_blank": post(b"Content-Length : 3", body=b"abc"),
    "name_with_tab": post(b"Content-Length\t: 3", body=b"abc"),
    "name_split": post(b"Content Length: 3", body=b"abc"),
    "name_with_nul": post(b"Content-Length\0: 3", body=b"abc"),
})
refuse("length", 413, "client.body_too_large", {
    "int64_max": post(b"Content-Length: 9223372036854775807"),
    "above_the_limit": post(b"Content-Length: 10485761"),
})

# ---- Transfer-Encoding: exactly one field, exactly "chunked" (RFC 9112 6.1)

CHUNKED = b"0\r\n\r\n"


def coded(value, *more, line=b"POST / HTTP/1.1"):
    return post(b"Transfer-Encoding: " + value, *more, body=CHUNKED, line=line)


refuse("coding", 400, "bad_request.framing", {
    "length_first": post(b"Content-Length: 5", b"Transfer-Encoding: chunked", body=CHUNKED),
    "length_last": post(b"Transfer-Encoding: chunked", b"Content-Length: 5", body=CHUNKED),
    "length_zero": post(b"Content-Length: 0", b"Transfer-Encoding: chunked", body=CHUNKED + SMUGGLED),
    "length_whole": post(b"Transfer-Encoding: chunked", b"Content-Length: 44",
                         body=CHUNKED + SMUGGLED),
    "length_on_get": get(b"Content-Length: 0", b"Transfer-Encoding: chunked"),
    "upper_case": post(b"CONTENT-LENGTH: 5", b"TRANSFER-ENCODING: CHUNKED", body=CHUNKED),
})
refuse("coding", 501, "bad_request.coding", {
    name: coded(value) for name, value in {
        "gzip": b"gzip", "deflate": b"deflate", "identity": b"identity", "unknown": b"cow",
        "gzip_chunked": b"gzip, chunked", "identity_chunked": b"identity, chunked",
        "chunked_twice_in_one_word": b"chunkedchunked", "x_chunked": b"xchunked",
        "chunked_x": b"chunkedx", "underscored": b"_chunked", "compress": b"compress",
        "trailers": b"trailers", "star": b"*", "tab_between": b"gzip,\tchunked",
        "parameter_of_another": b"gzip;q=1, chunked", "parameter_quoted": b'x ; a="b", chunked',
        "no_parameter": b"cow;", "chunked_dot": b"chunked.", "three": b"deflate, gzip, chunked",
    }.items()})
refuse("coding", 400, "bad_request.transfer_encoding", {
    name: coded(value) for name, value in {
        "repeated": b"chunked, chunked", "not_last": b"chunked, gzip",
        "chunked_identity": b"chunked, identity", "quoted": b'"chunked"',
        "single_quoted_blank": b"' chunked'", "parameter": b"chunked;q=1",
        "parameter_blank": b"chunked ; x", "comma_first": b",chunked", "comma_last": b"chunked,",
        "comma_blank_first": b" , chunked", "only_comma": b",", "empty": b"", "blanks": b"  ",
        "slash": b"chunked/1", "obs_text": b"\xa0chunked", "obs_text_behind": b"chunked\xa0",
        "dotless_i": "chunked\u0131".encode(), "two_words": b"chunked gzip", "tab_inside": b"chunk\ted",
        "braces": b"{chunked}", "equals": b"chunked=1", "utf8_bom": b"\xef\xbb\xbfchunked",
        "value_on_next_line": b"\r\n chunked", "parameter_no_weight": b"gzip, chunked;q=0",
        "quoted_comma": b'x;a="b,chunked"', "only_parameter": b";q=1, chunked", "kelvin": "chun\u212aed".encode(),
        "thrice": b"chunked,chunked,chunked", "two_commas_first": b",,chunked", "colon": b"chunked:",
    }.items()})
refuse("coding", 400, "bad_request.transfer_encoding", {
    "two_fields": coded(b"chunked", b"Transfer-Encoding: chunked"),
    "two_fields_identity": coded(b"chunked", b"Transfer-Encoding: identity"),
    "two_fields_empty": coded(b"chunked", b"Transfer-Encoding:"),
    "on_http10": coded(b"chunked", line=b"POST / HTTP/1.0"),
    "on_http10_keep_alive": coded(b"chunked", b"Connection: keep-alive", line=b"POST / HTTP/1.0"),
    "gzip_on_http10": coded(b"gzip", line=b"POST / HTTP/1.0"),
})
refuse("coding", 400, "bad_request.field_name", {
    "name_with_blank": post(b"Transfer-Encoding : chunked", body=CHUNKED),
    "name_with_tab": post(b"Transfer-Encoding\t: chunked", body=CHUNKED),
    "name_with_paren": post(b"Transfer-Encoding(x): chunked", body=CHUNKED),
})
refuse("coding", 400, "bad_request.folding", {
    "folded_value": post(b"Transfer-Encoding: chunked\r\n , x", body=CHUNKED),
    "folded_name": post(b"X: 1\r\n\tTransfer-Encoding: chunked", body=CHUNKED),
    "blank_before_the_name": post(b" Transfer-Encoding: chunked", body=CHUNKED),
    "tab_before_the_name": post(b"X: 1", b"\tTransfer-Encoding: chunked", body=CHUNKED),
})
refuse("coding", 400, "bad_request.field_value", {
    "vertical_tab": coded(b"\x0bchunked"), "form_feed": coded(b"chunked\x0c"),
    "nul": coded(b"chunked\0"), "backspace": coded(b"x\x08chunked"), "delete": coded(b"chunked\x7f"),
})
refuse("coding", 400, "bad_request.line_ending", {
    "bare_lf_before": post(b"X: 1\nTransfer-Encoding: chunked", body=CHUNKED),
    "bare_cr_before": post(b"X: 1\rTransfer-Encoding: chunked", body=CHUNKED),
    "bare_cr_in_value": coded(b"chun\rked"), "cr_cr_lf": coded(b"chunked\r"),
    "bare_lf_behind": post(b"Transfer-Encoding: chunked\nX: 1", body=CHUNKED),
})

# ---- chunks (RFC 9112 7.1): the head is taken, so these are refused while the body comes

CHUNKS_BAD, TRAILERS_BAD = {}, {}  # name -> body behind a good head


def chunk(size, data=b"abc", end=b"\r\n"):
    return size + b"\r\n" + data + end


CHUNKS_BAD.update({name: chunk(size) for name, size in {
    "empty": b"", "plus": b"+3", "minus": b"-3", "prefix": b"0x3", "prefix_upper": b"0X3",
    "blank_first": b" 3", "tab_first": b"\t3", "blank_behind": b"3 ", "tab_behind": b"3\t",
    "blank_inside": b"3 3", "underscore": b"0_3", "not_hex": b"g", "word": b"three", "comma": b"3,3",
    "dot": b"3.0", "quote": b'"3"', "hash": b"3#", "suffix_h": b"3h", "percent": b"%33",
    "seventeen_digits": b"0" * 16 + b"3", "overflow": b"10000000000000003",
    "all_ones": b"ffffffffffffffff", "int64_max_plus_1": b"8000000000000000",
    "wraps_to_3": b"f" * 16 + b"3", "nul": b"3\0", "obs_text": b"3\xa0", "fullwidth": b"\xef\xbc\x93",
    "vertical_tab": b"3\x0b", "blank_before_semicolon": b"3 ;x", "many_zeros": b"0" * 1000 + b"3",
    "colon": b"3:", "equals": b"=3", "line_with_field": b"Content-Length: 3",
    "bare_cr": b"3\rX", "cr_cr_lf": b"3\r",
}.items()})
CHUNKS_BAD.update({
    "bare_lf_behind_size": b"3\nabc\r\n0\r\n\r\n",
    "bare_lf_behind_data": b"3\r\nabc\n0\r\n\r\n",
    "bare_cr_behind_data": b"3\r\nabc\r0\r\n\r\n",
    "nothing_behind_data": b"3\r\nabc0\r\n\r\n",
    "two_bytes_behind_data": b"3\r\nabcXX0\r\n\r\n",
    "lf_cr_behind_data": b"3\r\nabc\n\r0\r\n\r\n",
    "blank_behind_data": b"3\r\nabc \r\n0\r\n\r\n",
    "too_much_data": b"3\r\nabcd\r\n0\r\n\r\n",
    "too_little_data": b"4\r\nabc\r\n0\r\n\r\n" + SMUGGLED,
    "empty_line_first": b"\r\n3\r\nabc\r\n0\r\n\r\n",
    "extension_with_lf": b"3;x\nabc\r\n0\r\n\r\n",
    "extension_with_lf_and_more": b"2;\nxx\r\n4c\r\n0\r\n\r\n" + SMUGGLED,
    "extension_with_cr": b"3;x\rabc\r\n0\r\n\r\n",
    "extension_with_nul": b"3;x\0\r\nabc\r\n0\r\n\r\n",
    "extension_with_escape": b"3;\x1b[0m\r\nabc\r\n0\r\n\r\n",
    "extension_too_long": b"3;" + b"x" * 1100 + b"\r\nabc\r\n0\r\n\r\n",
    "extensions_too_long": (b"1;" + b"x" * 900 + b"\r\na\r\n") * 10 + b"0\r\n\r\n",
    "last_bare_lf": b"0\n\n",
    "last_with_sign": b"-0\r\n\r\n",
    "extension_quoted_crlf": b'3;a="x\r\ny"\r\nabc\r\n0\r\n\r\n',
    "extension_quoted_lf": b'3;a="x\ny"\r\nabc\r\n0\r\n\r\n',
    "extension_with_vertical_tab": b"3;x\x0b\r\nabc\r\n0\r\n\r\n",
    "extension_with_form_feed": b"3;x\x0c\r\nabc\r\n0\r\n\r\n",
    "extension_with_delete": b"3;x\x7f\r\nabc\r\n0\r\n\r\n",
    "extension_one_too_long": b"3;" + b"x" * 1024 + b"\r\nabc\r\n0\r\n\r\n",
    "two_line_ends_behind_data": b"3\r\nabc\r\n\r\n0\r\n\r\n",
    "last_seventeen_zeros": b"0" * 17 + b"\r\n\r\n",
    "last_cr_cr_lf": b"0\r\r\n\r\n",
    "lf_before_size": b"\n3\r\nabc\r\n0\r\n\r\n",
    "last_prefix": b"0x\r\n\r\n",
})
TRAILERS_BAD.update({
    "no_colon": b"0\r\nbad\r\n\r\n",
    "empty_name": b"0\r\n: x\r\n\r\n",
    "blank_before_colon": b"0\r\nX : 1\r\n\r\n",
    "folded": b"0\r\nX: 1\r\n 2\r\n\r\n",
    "fold_first": b"0\r\n X: 1\r\n\r\n",
    "bare_lf": b"0\r\nX: 1\n\r\n",
    "bare_lf_end": b"0\r\nX: 1\r\n\n",
    "bare_cr": b"0\r\nX: 1\rY: 2\r\n\r\n",
    "nul": b"0\r\nX: 1\0\r\n\r\n",
    "next_request": b"0\r\n" + SMUGGLED,
    "data": b"0\r\nabc\r\n\r\n",
    "bare_cr_first": b"0\r\n\rX",
    "blank_line": b"0\r\n \r\n\r\n",
    "vertical_tab": b"0\r\nX: \x0b\r\n\r\n",
    "obs_text_name": b"0\r\n\xffX: 1\r\n\r\n",
})
TRAILERS_LARGE = {"too_many": b"0\r\n" + b"X: 1\r\n" * 65 + b"\r\n", "too_large": b"0\r\nX: " + b"a" * 9000 + b"\r\n\r\n",
                  "endless": b"0\r\nX: " + b"a" * 60000, "endless_name": b"0\r\n" + b"X" * 60000}

# ---- the request line (RFC 9112 3)

refuse("line", 400, "bad_request.line", {
    "no_version": get(line=b"GET /"), "no_target": get(line=b"GET HTTP/1.1"),
    "only_method": get(line=b"GET"), "empty_target": get(line=b"GET  HTTP/1.1"),
    "two_blanks_behind_method": get(line=b"GET  / HTTP/1.1"),
    "two_blanks_behind_target": get(line=b"GET /  HTTP/1.1"),
    "blank_at_the_end": get(line=b"GET / HTTP/1.1 "), "word_at_the_end": get(line=b"GET / HTTP/1.1 x"),
    "blank_first": get(line=b" GET / HTTP/1.1"),
    "blank_in_target": get(line=b"GET /a b HTTP/1.1"), "lower_case_version": get(line=b"GET / http/1.1"),
    "not_http": get(line=b"GET / HTXP/1.1"), "short_version": get(line=b"GET / HTTP/1"),
    "long_version": get(line=b"GET / HTTP/1.10"), "version_zeros": get(line=b"GET / HTTP/01.1"),
    "version_comma": get(line=b"GET / HTTP/1,1"), "version_blank": get(line=b"GET / HTTP/ 1.1"),
    "mixed_case_version": get(line=b"GET / Http/1.1"), "version_eleven": get(line=b"GET / HTTP/11.1"),
    "version_dot_behind": get(line=b"GET / HTTP/1.1."), "version_no_minor": get(line=b"GET / HTTP/1."),
    "version_no_slash": get(line=b"GET / HTTP1.1"), "https_version": get(line=b"GET / HTTPS/1.1"),
    "form_feed_in_target": get(line=b"GET /\x0c HTTP/1.1"), "tab_at_the_end": get(line=b"GET / HTTP/1.1\t"),
    "version_signed": get(line=b"GET / HTTP/+1.1"), "version_word": get(line=b"GET / HTTP/x.y"),
    "icy": get(line=b"ICY / HTTP"),
    "http_09": b"GET /\r\n\r\n", "fullwidth_version": get(line=b"GET / HTTP/\xef\xbc\x91.1"),
    "two_empty_lines_first": b"\r\n\r\n" + get(),
    "many_empty_lines": b"\r\n" * 50 + get(),
    "escape_first": get(line=b"\x1bGET / HTTP/1.1"), "nul_in_target": get(line=b"GET /\0 HTTP/1.1"),
    "delete_in_target": get(line=b"GET /\x7f HTTP/1.1"),
    "vertical_tab": get(line=b"GET\x0b/ HTTP/1.1"),
})
refuse("method", 400, "bad_request.method", {
    "response": b"HTTP/1.1 200 OK\r\n" + H + b"\r\n", "tab_behind_method": get(line=b"GET\t/ HTTP/1.1"),
    "paren": get(line=b"G(T / HTTP/1.1"), "colon": get(line=b"GET: / HTTP/1.1"),
    "slash": get(line=b"GET/ / HTTP/1.1"), "quote": get(line=b'"GET" / HTTP/1.1'),
    "at": get(line=b"G@T / HTTP/1.1"), "comma": get(line=b"GET, / HTTP/1.1"),
    "obs_text": get(line=b"G\xc9T / HTTP/1.1"), "too_long": get(line=b"M" * 33 + b" / HTTP/1.1"),
    "far_too_long": get(line=b"M" * 9000 + b" / HTTP/1.1"), "utf8_bom": b"\xef\xbb\xbf" + get(),
    "json": b'{"jsonrpc": "2.0", "method": "x"}\r\n\r\n',
    "connect": get(line=b"CONNECT test:443 HTTP/1.1", host=b"Host: test:443\r\n"),
    "connect_path": get(line=b"CONNECT / HTTP/1.1"),
    "connect_with_body": post(b"Content-Length: 3", body=b"abc", line=b"CONNECT a:1 HTTP/1.1"),
})
refuse("ending", 400, "bad_request.line_ending", {
    "bare_lf": b"GET / HTTP/1.1\n" + H + b"\r\n", "bare_lf_all": b"GET / HTTP/1.1\nHost: test\n\n",
    "bare_cr": b"GET / HTTP/1.1\rHost: test\r\r", "lf_cr": b"GET / HTTP/1.1\n\r" + H + b"\r\n",
    "cr_cr_lf": b"GET / HTTP/1.1\r\r\n" + H + b"\r\n", "lf_first": b"\n" + get(),
    "cr_in_target": get(line=b"GET /a\rb HTTP/1.1"), "lf_in_target": get(line=b"GET /a\nb HTTP/1.1"),
    "cr_first": b"\r" + get(), "http_09_lf": b"GET /\n\n",
    "end_of_head_lf": b"GET / HTTP/1.1\r\nHost: test\r\n\n", "end_of_head_lf_only": b"GET / HTTP/1.1\r\nHost: test\n\r\n",
})
refuse("target", 400, "bad_request.target", {
    name: get(line=b"GET " + target + b" HTTP/1.1") for name, target in {
        "relative": b"x", "tab_behind": b"/\t", "relative_dots": b"../x", "fragment": b"/a#b", "fragment_only": b"#",
        "obs_text": b"/\xe9", "utf8": "/\u00e9".encode(), "high_bit_slash": b"/\xaf",
        "overlong": b"/\xc0\xaf", "authority": b"test:80", "authority_bare": b"test",
        "asterisk": b"*", "asterisk_more": b"*/x", "backslash_first": b"\\x", "query_first": b"?x=1",
        "scheme_only": b"http:", "scheme_slash": b"http:/", "scheme_no_host": b"http:///x",
        "scheme_ftp": b"ftp://test/", "scheme_ws": b"ws://test/", "scheme_file": b"file:///etc/passwd",
        "scheme_javascript": b"javascript:alert(1)", "scheme_data": b"data:,x",
        "userinfo": b"http://u:p@test/", "userinfo_empty": b"http://@test/",
        "userinfo_tricks": b"http://test@evil/", "absolute_port": b"http://test:x/",
        "absolute_port_large": b"http://test:65536/", "absolute_backslash": b"http://test\\@evil/",
        "absolute_fragment": b"http://test/#x", "absolute_ipv6_open": b"http://[::1/",
        "absolute_ipv6_zone": b"http://[fe80::1%25eth0]/", "absolute_space_host": b"http://te%20st/",
        "double_quote_ok_but_bracket": b"[x]", "scheme_backslashes": b"http:\\\\test/",
        "absolute_port_only": b"http://:80/", "absolute_port_empty": b"http://test:/", "scheme_two_slashes": b"http://",
        "fragment_behind_query": b"/?#x",
    }.items()})
refuse("target", 400, "bad_request.target", {
    "post_asterisk": post(b"Content-Length: 0", line=b"POST * HTTP/1.1"),
    "options_authority": get(line=b"OPTIONS test:80 HTTP/1.1"), "head_asterisk": get(line=b"HEAD * HTTP/1.1"),
    "lower_case_options_asterisk": get(line=b"options * HTTP/1.1"), "lower_case_connect": get(line=b"connect test:443 HTTP/1.1"),
    "preface_of_1_1": get(line=b"PRI * HTTP/1.1"),
    "options_asterisk_query": get(line=b"OPTIONS *?x HTTP/1.1"),
})
refuse("version", 505, "bad_request.version", {
    "http_0_9": get(line=b"GET / HTTP/0.9"), "http_1_2": get(line=b"GET / HTTP/1.2"),
    "http_1_9": get(line=b"GET / HTTP/1.9"), "http_2_0": get(line=b"GET / HTTP/2.0"),
    "http_3_0": get(line=b"GET / HTTP/3.0"), "http_9_9": get(line=b"GET / HTTP/9.9"),
    "http_0_0": get(line=b"GET / HTTP/0.0"),
})
refuse("target", 414, "client.target_too_long", {
    "one_too_long": get(line=b"GET /" + b"a" * 8192 + b" HTTP/1.1"),
    "much_too_long": get(line=b"GET /" + b"a" * 30000 + b" HTTP/1.1"),
    "endless": b"GET /" + b"a" * 60000, "query": get(line=b"GET /?" + b"a" * 8200 + b" HTTP/1.1"),
})

# ---- other protocols on this port

refuse("other", 400, "bad_request.tls", {
    "hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(512),
    "hello_1_3": b"\x16\x03\x03\x00\xf4\x01\x00\x00\xf0\x03\x03" + bytes(240),
    "two_bytes": b"\x16\x03",
})
refuse("other", 400, "bad_request.http2", {
    "preface_wrong": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r_",
    "preface_with_host": b"PRI * HTTP/2.0\r\nHost: a\r\n\r\n",
    "preface_head_only": b"PRI * HTTP/2.0\r\n\r\n\r\n",
})
refuse("other", 400, "bad_request.target", {
    "proxy_v1": b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n" + get()
})
refuse("other", 400, "bad_request.line", {
    "proxy_v2": b"\r\n\r\n\0\r\nQUIT\n" + b"\x21\x11\0\x0c" + bytes(12),
})
refuse("other", 400, "bad_request.line", {
    "ssl2": b"\x80\x2e\x01\x00\x02" + bytes(40), "ssh": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "smtp": b"EHLO test\r\n\r\n", "socks5": b"\x05\x01\x00", "socks4": b"\x04\x01\x00\x50" + bytes(6),
    "memcached": b"get key\r\n\r\n", "redis": b"PING\r\n\r\n", "rdp": b"\x03\x00\x00\x13\x0e\xe0" + bytes(13),
    "nuls": bytes(64),
})

# ---- fields (RFC 9112 5)

refuse("field", 400, "bad_request.field_name", {
    name: get(line_) for name, line_ in {
        "empty_name": b": x", "only_colon": b":", "blank_before_colon": b"X : 1",
        "tab_before_colon": b"X\t: 1", "blank_inside": b"X Y: 1", "no_colon": b"X",
        "no_colon_word": b"just words", "obs_text": b"X\xe9: 1", "utf8": "X\u00e9: 1".encode(),
        "paren": b"X(: 1", "slash": b"X/Y: 1", "quote": b'"X": 1', "comma": b"X,Y: 1", "at": b"X@: 1",
        "bracket": b"[X]: 1", "brace": b"{X}: 1", "equals": b"X=: 1", "semicolon": b"X;: 1",
        "backslash": b"X\\: 1", "question": b"X?: 1", "nul": b"X\0: 1", "escape": b"\x1bX: 1",
        "delete": b"X\x7f: 1", "less": b"<X>: 1",
    }.items()})
refuse("field", 400, "bad_request.field_name", {
    "empty_name_hides_others": get(b": x", b"Content-Length: 44"),
    "host_with_blank": get(host=b"Host : test\r\n"),
    "second_request_line": get(b"GET /smuggled HTTP/1.1"),
})
refuse("field", 400, "bad_request.field_value", {
    f"control_{byte:02x}": get(b"X: a" + bytes([byte]) + b"b")
    for byte in (*range(0, 9), *range(11, 13), *range(14, 32), 127)})
refuse("field", 400, "bad_request.line_ending", {
    "bare_cr": get(b"X: a\rb"), "bare_lf": get(b"X: a\nb"), "bare_lf_field": get(b"X: a\nY: b"),
    "bare_cr_field": get(b"X: a\rY: b"), "cr_cr_lf": get(b"X: a\r"), "lf_cr": get(b"X: a\n\rY: b"),
    "empty_line_lf": get(b"X: a\n\nGET /smuggled HTTP/1.1"),
    "empty_line_cr": get(b"X: a\r\rGET /smuggled HTTP/1.1"),
})
refuse("field", 400, "bad_request.folding", {
    "blank": get(b"X: a", b" b"), "tab": get(b"X: a", b"\tb"), "first_line": get(host=b" Host: test\r\n"),
    "empty_fold": get(b"X: a", b" "), "fold_before_end": get(b"X: a\r\n "),
    "fold_hides_field": get(b"X: a", b" Content-Length: 40"),
})
refuse("field", 431, "client.headers_too_large", {
    "too_many": get(*[b"X: 1"] * 101), "far_too_many": get(*[b"X: 1"] * 2000),
    "one_too_large": get(b"X: " + b"a" * 33000), "endless": b"GET / HTTP/1.1\r\n" + H + b"X: " + b"a" * 60000,
    "endless_name": b"GET / HTTP/1.1\r\n" + H + b"X" * 60000,
    "many_large": get(*[b"X: " + b"a" * 1000] * 40),
    "bomb": get(*[b"a:"] * 12000),
})

# ---- Host (RFC 9110 7.2, RFC 9112 3.2)

refuse("host", 400, "bad_request.host", {
    name: get(host=host) for name, host in {
        "none": b"", "two": H + H, "two_differ": H + b"Host: evil\r\n", "two_cases": H + b"HOST: test\r\n",
        "empty": b"Host:\r\n", "blank": b"Host:  \r\n", "userinfo": b"Host: u@test\r\n",
        "password": b"Host: u:p@test\r\n", "path": b"Host: test/x\r\n", "query": b"Host: test?x\r\n",
        "fragment": b"Host: test#x\r\n", "blank_inside": b"Host: te st\r\n", "list": b"Host: test, evil\r\n",
        "port_word": b"Host: test:http\r\n", "port_large": b"Host: test:65536\r\n",
        "port_negative": b"Host: test:-1\r\n", "port_plus": b"Host: test:+80\r\n",
        "port_twice": b"Host: test:80:80\r\n", "port_blank": b"Host: test: 80\r\n",
        "port_empty": b"Host: test:\r\n", "port_long": b"Host: test:000080\r\n", "ipv6_bare": b"Host: ::1\r\n",
        "ipv6_open": b"Host: [::1\r\n", "ipv6_wrong": b"Host: [:::1]\r\n", "ipv6_behind": b"Host: [::1]x\r\n",
        "ipv6_empty": b"Host: []\r\n", "ipv6_zone": b"Host: [fe80::1%eth0]\r\n",
        "scheme": b"Host: http://test\r\n", "backslash": b"Host: test\\evil\r\n", "obs_text": b"Host: t\xe9st\r\n",
        "only_port": b"Host: :80\r\n", "quote": b'Host: "test"\r\n', "less": b"Host: <test>\r\n",
        "percent_nul": b"Host: test%00\r\n", "tab_inside": b"Host: te\tst\r\n", "asterisk": b"Host: *\r\n",
        "percent": b"Host: te%73t\r\n", "two_dots": b"Host: a..b\r\n", "only_dot": b"Host: .\r\n",
        "dot_first": b"Host: .test\r\n", "exclamation": b"Host: te!st\r\n", "ipv_future": b"Host: [v1.x]\r\n", "semicolon": b"Host: test;x\r\n",
    }.items()})
refuse("host", 400, "bad_request.host", {
    "absolute_without": get(line=b"GET http://test/ HTTP/1.1", host=b""),
    "absolute_twice": get(line=b"GET http://test/ HTTP/1.1", host=H + H),
    "http10_two": get(line=b"GET / HTTP/1.0", host=H + H),
    "http10_bad": get(line=b"GET / HTTP/1.0", host=b"Host: a b\r\n"),
})
refuse("host", 400, "bad_request.field_value", {
    "nul": get(host=b"Host: test\0\r\n"), "escape": get(host=b"Host: \x1btest\r\n"),
})

# ---- Connection and Upgrade (RFC 9110 7.6.1, 7.8)

refuse("connection", 400, "bad_request.connection", {
    name: get(b"Connection: close, " + name.encode(), name.encode() + b": x" if
              name not in ("Host", "Content-Length") else b"Y: 1")
    for name in ("Authorization", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host",
                 "X-Request-Id", "Host", "Content-Length", "Content-Type", "Content-Encoding",
                 "Cookie", "Via", "Forwarded", "Traceparent", "Date", "Location", "Tracestate")})
refuse("connection", 400, "bad_request.connection", {
    "case": get(b"Connection: AUTHORIZATION", b"Authorization: x"),
    "second_field": get(b"Connection: close", b"Connection: authorization"),
    "keep_alive_first": get(b"Connection: keep-alive,X-Forwarded-For"),
    "many": get(b"Connection: " + b", ".join(b"a%d" % i for i in range(40))),
})
refuse("upgrade", 400, "bad_request.upgrade", {
    "with_length": post(b"Connection: upgrade", b"Upgrade: websocket", b"Content-Length: 3", body=b"abc"),
    "with_chunks": post(b"Connection: upgrade", b"Upgrade: websocket", b"Transfer-Encoding: chunked",
                        body=b"3\r\nabc\r\n0\r\n\r\n"),
    "two_fields": get(b"Connection: upgrade", b"Upgrade: websocket", b"Upgrade: x"),
    "blank": get(b"Connection: upgrade", b"Upgrade: a b"), "empty": get(b"Connection: upgrade", b"Upgrade:"),
    "slash": get(b"Connection: upgrade", b"Upgrade: websocket/"),
    "quoted": get(b"Connection: upgrade", b'Upgrade: "websocket"'),
    "only_comma": get(b"Connection: upgrade", b"Upgrade: ,"),
})

# ---- expectations

refuse("expect", 417, "client.expect", {
    name: post(b"Expect: " + value, b"Content-Length: 3") for name, value in {
        "unknown": b"200-ok", "list": b"100-continue, x", "typo": b"100-continu", "parameter": b"100-continue;x",
        "quoted": b'"100-continue"', "status": b"100",
    }.items()})

# ---- what passes, and what becomes of it

passes("plain", get())
passes("lf_before", b"\r\n" + get())
passes("unknown_method", get(line=b"BREW /pot HTTP/1.1"), "BREW /pot HTTP/1.1")
passes("lower_case_method", get(line=b"get / HTTP/1.1"), "get / HTTP/1.1")
passes("method_of_32", get(line=b"M" * 32 + b" / HTTP/1.1"), "M" * 32 + " / HTTP/1.1")
passes("trace", get(line=b"TRACE / HTTP/1.1"), "TRACE / HTTP/1.1")
passes("target_longest", get(line=b"GET /" + b"a" * 8191 + b" HTTP/1.1"), f"GET /{'a' * 8191} HTTP/1.1")
passes("query_kept", get(line=b"GET /?a=%2F%00&b=..%5c?c HTTP/1.1"), "GET /?a=%2F%00&b=..%5c?c HTTP/1.1")
passes("empty_query_kept", get(line=b"GET /? HTTP/1.1"), "GET /? HTTP/1.1")
passes("odd_target_bytes", get(line=b'GET /"<>{}|^`[]@!$&\'()*+,;=~ HTTP/1.1'),
       'GET /"<>{}|^`[]@!$&\'()*+,;=~ HTTP/1.1')
passes("absolute", get(line=b"GET http://test/x?y HTTP/1.1"), "GET /x?y HTTP/1.1")
passes("absolute_without_path", get(line=b"GET http://test HTTP/1.1"), "GET / HTTP/1.1")
passes("absolute_query_only", get(line=b"GET http://test?y HTTP/1.1"), "GET /?y HTTP/1.1")
passes("absolute_disagrees", get(line=b"GET http://test/ HTTP/1.1", host=b"Host: evil\r\n"))
passes("absolute_port_disagrees", get(line=b"GET http://test:81/ HTTP/1.1"), host="test:81")
passes("absolute_case", get(line=b"GET HTTP://TEST/ HTTP/1.1"), host="TEST")
passes("options_asterisk", get(line=b"OPTIONS * HTTP/1.1"), "OPTIONS * HTTP/1.1")
passes("options_absolute", get(line=b"OPTIONS http://test HTTP/1.1"), "OPTIONS * HTTP/1.1")
passes("host_port", get(host=b"Host: test:8080\r\n"), host="test:8080")
passes("host_dot", get(host=b"Host: test.\r\n"), host="test.")
passes("host_ipv6", get(host=b"Host: [::1]:80\r\n"), host="[::1]:80")
passes("host_ipv4", get(host=b"Host: 127.0.0.1\r\n"), host="127.0.0.1")
passes("host_underscore", get(host=b"Host: a_b\r\n"), host="a_b")
passes("host_blanks_around", get(host=b"Host:\t test \t\r\n"))
passes("value_blanks_trimmed", get(b"X:  a  b\t "), fields=[("X", "a  b")])
passes("value_empty", get(b"X:", b"Y: "), fields=[("X", ""), ("Y", "")])
passes("value_obs_text", get(b"X: \xe9\xff\x80"), fields=[("X", "\xe9\xff\x80")])
passes("value_tab_inside", get(b"X: a\tb"), fields=[("X", "a\tb")])
passes("value_colons", get(b"X: a: b:"), fields=[("X", "a: b:")])
passes("name_odd_token", get(b"!#$%&'*+-.^_`|~9: 1"), fields=[("!#$%&'*+-.^_`|~9", "1")])
passes("same_name_kept_in_order", get(b"X: 1", b"Y: 2", b"x: 3"),
       fields=[("X", "1"), ("Y", "2"), ("x", "3")])
passes("hundred_fields", get(*[b"X: 1"] * 99), fields=[("X", "1")] * 99)
passes("underscore_field_of_no_twin", get(b"My_Field: 1"), fields=[("My_Field", "1")])
passes("cookies_in_order", get(b"Cookie: a=1", b"Cookie: b=2"), fields=[("Cookie", "a=1"), ("Cookie", "b=2")])

POST = "POST / HTTP/1.1"
for method in ("GET", "HEAD", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREW", "PUT"):
    line = f"{method} / HTTP/1.1"
    if method != "HEAD":  # whose answer has no body, and the table's does
        passes(f"body_on_{method}", post(b"Content-Length: 3", body=b"abc", line=line.encode()), line,
               [("Content-Length", "3")], b"abc")
        passes(f"chunks_on_{method}",
               post(b"Transfer-Encoding: chunked", body=b"3\r\nabc\r\n0\r\n\r\n", line=line.encode()), line,
               [("Transfer-Encoding", "chunked")], b"abc")
for name, value, length in (("zero", b"0", "0"), ("zeros", b"000", "0"), ("leading_zeros", b"0003", "3"),
                            ("blanks", b"\t 3 \t", "3")):
    passes(f"length_{name}", post(b"Content-Length: " + value, body=b"abc" if length == "3" else b""), POST,
           [("Content-Length", length)], b"abc" if length == "3" else b"")
passes("length_name_case", post(b"cOnTeNt-LeNgTh: 3", body=b"abc"), POST, [("Content-Length", "3")], b"abc")
for name, value in (("case", b"ChUnKeD"), ("blanks", b"\t chunked \t"), ("plain", b"chunked")):
    passes(f"coding_{name}", post(b"Transfer-Encoding: " + value, body=b"3\r\nabc\r\n0\r\n\r\n"), POST,
           [("Transfer-Encoding", "chunked")], b"abc")
for name, body, data in (
        ("upper_hex", b"A\r\n0123456789\r\n0\r\n\r\n", b"0123456789"),
        ("leading_zeros", b"0003\r\nabc\r\n0000\r\n\r\n", b"abc"),
        ("sixteen_digits", b"0000000000000003\r\nabc\r\n0\r\n\r\n", b"abc"),
        ("extension", b"3;a=b\r\nabc\r\n0\r\n\r\n", b"abc"),
        ("extension_quoted", b'3;a="b;c"\r\nabc\r\n0;x\r\n\r\n', b"abc"),
        ("extension_empty", b"3;\r\nabc\r\n0;\r\n\r\n", b"abc"),
        ("extension_long", b"3;" + b"x" * 1000 + b"\r\nabc\r\n0\r\n\r\n", b"abc"),
        ("only_last", b"0\r\n\r\n", b""), ("bytes", b"1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n", b"abc"),
        ("data_like_framing", b"7\r\n0\r\n\r\n\r\n\r\n0\r\n\r\n", b"0\r\n\r\n\r\n")):
    passes(f"chunk_{name}", post(b"Transfer-Encoding: chunked", body=body), POST,
           [("Transfer-Encoding", "chunked")], data)
for name, value in (("", b"100-continue"), ("_case", b"100-Continue")):
    passes(f"expect_continue{name}", post(b"Expect: " + value, b"Content-Length: 3", body=b"abc"), POST,
           [("Content-Length", "3")], b"abc")

# hop-by-hop fields stay here
for name, lines in {
        "connection_named": [b"Connection: X-Hop", b"X-Hop: 1"],
        "connection_named_case": [b"Connection: x-hop, X-HOP2", b"X-Hop: 1", b"x-hop2: 2"],
        "connection_named_absent": [b"Connection: nothing"],
        "connection_list_odd": [b"Connection: ,, keep-alive ,,"],
        "connection_te": [b"Connection: TE", b"TE: trailers"],
        "keep_alive": [b"Connection: keep-alive", b"Keep-Alive: timeout=5"],
        "proxy_connection": [b"Proxy-Connection: keep-alive"],
        "te": [b"TE: trailers, deflate"],
        "trailer_that_frames": [b"Trailer: Content-Length"], "trailer_among_others": [b"trailer: X-Sum, transfer-encoding"],
        "trailer_twin": [b"Trailer: Content_Length"],
        "proxy_authorization": [b"Proxy-Authorization: Basic eDp5"],
        "upgrade_not_named": [b"Upgrade: websocket"],
        "h2c": [b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQAAP__"],
        "h2c_case": [b"Connection: upgrade", b"Upgrade: H2C"],
        "h2c_among_others": [b"Connection: upgrade", b"Upgrade: websocket, h2c"],
        "h2c_version": [b"Connection: upgrade", b"Upgrade: h2c/1"],
        "h2c_draft": [b"Connection: upgrade", b"Upgrade: h2c-14"],
        "h2": [b"Connection: upgrade", b"Upgrade: H2"],
        "http_upgrade": [b"Connection: upgrade", b"Upgrade: HTTP/2.0"],
        "tls_upgrade": [b"Connection: upgrade", b"Upgrade: TLS/1.0, HTTP/1.1"],
        "connection_quoted": [b'Connection: "close"'], "connection_empty": [b"Connection:"],
        "connection_itself": [b"Connection: connection"], "connection_framing": [b"Connection: transfer-encoding"],
        "http2_settings": [b"HTTP2-Settings: AAMAAABkAAQAAP__"],
}.items():
    passes(f"hop_{name}", get(*lines))
passes("upgrade_declined", get(b"Connection: upgrade", b"Upgrade: websocket"),
       fields=[("Connection", "upgrade"), ("Upgrade", "websocket")])
passes("hop_connection_close", get(b"Connection: close"))

# how far a request may go (RFC 9110 7.6.2); other methods do not count
for name, method, sent, left in (("trace", "TRACE", b"1", "0"), ("options", "OPTIONS", b"10", "9"), ("zeros", "OPTIONS", b"002", "1"),
                                 ("get", "GET", b"0", "0"), ("post", "POST", b"x", "x")):
    passes(f"max_forwards_{name}", get(b"Max-Forwards: " + sent, line=f"{method} / HTTP/1.1".encode()), f"{method} / HTTP/1.1",
           [("Max-Forwards", left)])
refuse("max_forwards", 400, "bad_request.field_value", {
    name: get(*(b"Max-Forwards: " + v for v in values), line=b"OPTIONS / HTTP/1.1") for name, values in {
        "empty": [b""], "word": [b"x"], "minus": [b"-1"], "plus": [b"+1"], "list": [b"1, 1"], "two": [b"1", b"1"],
        "two_differ": [b"0", b"5"], "blank_inside": [b"1 1"], "hex": [b"0x1"], "overflow": [b"9" * 30]}.items()})

# names that some backends fold into those of the framing
for name, line in (("length", b"Content_Length: 30"), ("length_dot", b"content.length: 30"), ("coding", b"Transfer_Encoding: chunked"),
                   ("coding_dot", b"TRANSFER.ENCODING: chunked")):
    passes(f"twin_of_{name}", post(line, b"Content-Length: 3", body=b"abc"), "POST / HTTP/1.1", [("Content-Length", "3")], b"abc")

# what only the gateway may say (bar 26): its own value and no other reaches the backend
SPOOFED = ("X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Request-Id", "Forwarded")
for field in SPOOFED:
    for kind, spelt in {
            "plain": field, "lower": field.lower(), "upper": field.upper(), "under": field.replace("-", "_"),
            "dots": field.replace("-", "."), "mixed": field.replace("-", "_", 1).lower(),
            "upper_under": field.upper().replace("-", "_")}.items():
        if kind in ("under", "dots", "mixed", "upper_under") and "-" not in field:
            continue
        passes(f"spoof_{kind}_{field.lower()}", get(spelt.encode() + b": 6.6.6.6", spelt.encode() + b": 7.7.7.7"))
for field in (*SPOOFED, "Authorization", "Host", "Content-Length", "Transfer-Encoding", "X_Forwarded_For",
              "Cookie", "Set-Cookie", "X-Api-Key", "Connection", "Via"):
    passes(f"spoof_trailer_{field.lower()}",
           post(b"Transfer-Encoding: chunked", body=b"3\r\nabc\r\n0\r\n" + field.encode() + b": 6\r\n\r\n"), POST,
           [("Transfer-Encoding", "chunked")], b"abc")

# behind any refused request nothing is read
PIPELINED = {name: REFUSED[name][0] for name in (
    "length.list", "coding.length_first", "coding.repeated", "line.two_blanks_behind_method",
    "ending.bare_lf", "field.empty_name", "field.blank", "host.two", "host.none", "connection.Authorization", "upgrade.two_fields", "version.http_2_0",
    "target.asterisk", "field.too_many", "expect.unknown", "target.one_too_long")}
