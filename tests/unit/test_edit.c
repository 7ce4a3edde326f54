#include "conf_test.h"

static void takes_set_add_and_remove(void **state)
{
    (void)state;
    struct conf *conf =
        conf_of(LISTENER UPSTREAM
                "route \"r\" { path = \"/{id}\" upstream = u\n"
                "request_headers { set = {\"X-A:  b \", \"X-Id: {id}\", \"Host: x:80\"}\n"
                "add = \"X-B: c: d\" remove = {X-C, \"X-D\"} }\n"
                "response_headers { set = \"X-Empty:\" } }");
    const struct conf_edit *edit = &conf->routes[0].request_headers;
    assert_int_equal(edit->set_count, 3);
    assert_string_equal(edit->set[0].name, "X-A");
    assert_true(str_eq(edit->set[0].value.parts[0].text, STR("b")));
    assert_int_equal(edit->set[1].value.parts[0].var, VAR_CAPTURE);
    assert_int_equal(edit->add_count, 1);
    assert_true(str_eq(edit->add[0].value.parts[0].text, STR("c: d")));
    assert_int_equal(edit->remove.count, 2);
    assert_string_equal(edit->remove.list[1], "X-D");
    edit = &conf->routes[0].response_headers;
    assert_int_equal(edit->set_count, 1);
    assert_int_equal(edit->set[0].value.count, 0);
    conf_free(conf);
}

static void refuses_what_would_split_or_frame_a_message(void **state)
{
    (void)state;
    static const struct option_case cases[] = {
        {"request_headers { set = \"A: b\\r\\nC: d\" }",
         "the value of A has control characters"},
        {"request_headers { set = \"A: b\\x01\" }", "the value of A has control characters"},
        {"request_headers { set = \"A: b\\tc\" }", NULL},
        {"request_headers { set = \"A b: c\" }", "\"A b\" is no header name"},
        {"request_headers { set = \"A : c\" }", "\"A \" is no header name"},
        {"request_headers { set = \": c\" }", "\"\" is no header name"},
        {"request_headers { set = \"A\\nB: c\" }", "is no header name"},
        {"request_headers { set = \"plain\" }", "has \"plain\", expected \"Name: value\""},
        {"request_headers { set = {\"A: 1\", \"a: 2\"} }", "sets a twice"},
        {"request_headers { add = {\"A: 1\", \"a: 2\"} }", NULL},
        {"request_headers { add = \"Content-Length: 3\" }", "Content-Length cannot be edited"},
        {"request_headers { remove = content-length }", "content-length cannot be edited"},
        {"request_headers { set = \"Transfer-Encoding: chunked\" }", "cannot be edited"},
        {"request_headers { set = \"Connection: close\" }", "cannot be edited, it frames"},
        {"request_headers { set = \"Keep-Alive: x\" }", "cannot be edited"},
        {"request_headers { set = \"Proxy-Connection: x\" }", "cannot be edited"},
        {"request_headers { set = \"TE: trailers\" }", "cannot be edited"},
        {"request_headers { set = \"Trailer: x\" }", "cannot be edited"},
        {"request_headers { set = \"Upgrade: x\" }", "cannot be edited"},
        {"request_headers { set = \"HTTP2-Settings: x\" }", "cannot be edited"},
        {"request_headers { set = \"Expect: 100-continue\" }", "cannot be edited"},
        {"request_headers { remove = Host }", "a request has exactly one (use set)"},
        {"request_headers { add = \"Host: x\" }", "a request has exactly one (use set)"},
        {"request_headers { set = \"Host: a b\" }", "the value of Host is no HOST"},
        {"request_headers { set = \"Host: {path}\" }", "the value of Host is no HOST"},
        {"request_headers { set = \"Host:\" }", "the value of Host is no HOST"},
        {"response_headers { set = \"Host: x\" }", "it belongs to requests"},
        {"response_headers { remove = {\"a b\"} }",
         "response_headers.remove: \"a b\" is no header"},
        {"response_headers { remove = Transfer-Encoding }", "cannot be edited"},
        {"response_headers { add = \"A: {nope}\" }", "response_headers.add uses {nope}"},
    };
    CHECK_OPTIONS(FIRST "route \"r\" { upstream = u", "}", cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_set_add_and_remove),
        cmocka_unit_test(refuses_what_would_split_or_frame_a_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
