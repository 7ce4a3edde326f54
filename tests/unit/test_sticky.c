#include "forward_test.h"

#include "proxy/sticky.h"

#define SECRET "secret = \"0123456789abcdef\""
#define MORE   " server \"127.0.0.1:3\" {} server \"127.0.0.1:4\" {}"

static struct field answer_fields[8];
static struct head answer;

/* What the client is told, "" for nothing, when server `server` answers. */
static const char *told(int server)
{
    static char text[256];
    answer = (struct head){.fields = answer_fields, .cap = 8, .status = 200};
    ex.server = server;
    assert_true(sticky_tell(&ex, &answer));
    if (!answer.count)
        return "";
    assert_int_equal(answer.count, 1);
    assert_str(answer.fields[0].name, "Set-Cookie");
    snprintf(text, sizeof(text), "%.*s", (int)answer.fields[0].value.n,
             answer.fields[0].value.p);
    return text;
}

/* A request with that Cookie field, as it goes out. */
static void ask(const char *cookie)
{
    static char request[512];
    ex.server = 0;
    snprintf(request, sizeof(request), "GET / HTTP/1.1\r\nHost: h\r\n%s%s%s\r\n",
             cookie ? "Cookie: " : "", cookie ? cookie : "", cookie ? "\r\n" : "");
    forwarded(request);
}

static void a_cookie_leads_back_to_its_server(void **state)
{
    (void)state;
    for (int server = 0; server < 3; server++) {
        begin_with("", MORE " sticky_cookie { name = at " SECRET " }", "", "192.0.2.7");
        ask(NULL);
        assert_int_equal(sticky_server(&ex), -1);
        char cookie[300];
        snprintf(cookie, sizeof(cookie), "a=b; %s", told(server));
        *strchr(strchr(cookie, ';') + 1, ';') = '\0'; /* its attributes do not come back */
        ask(cookie);
        assert_int_equal(sticky_server(&ex), server);
        assert_string_equal(told(server), "");
        assert_true(strstr(told((server + 1) % 3), "at=") != NULL);
        end();
    }
}

static void says_no_address_and_is_the_same_for_the_same_secret(void **state)
{
    (void)state;
    char first[64] = "";
    static const char *const secrets[] = {SECRET, SECRET, "secret = \"0123456789abcdeg\"", ""};
    for (size_t i = 0; i < 4; i++) {
        char options[256];
        snprintf(options, sizeof(options), "sticky_cookie { name = at %s }", secrets[i]);
        begin_with("", options, "", "192.0.2.7");
        ask(NULL);
        const char *text = told(0);
        assert_lacks(text, "127");
        assert_int_equal(strspn(text + 3, "0123456789abcdef"), 16);
        if (i == 0)
            snprintf(first, sizeof(first), "%.19s", text);
        assert_int_equal(strncmp(first, text, 19) == 0, i < 2);
        end();
    }
}

static void has_the_attributes_that_were_asked_for(void **state)
{
    (void)state;
    static const struct {
        const char *options, *peer, *attributes;
    } cases[] = {
        {"", "192.0.2.7", "; Path=/; HttpOnly; SameSite=Lax"},
        {"", "10.0.0.1", "; Path=/; HttpOnly; SameSite=Lax; Secure"},
        {"secure = never", "10.0.0.1", "; Path=/; HttpOnly; SameSite=Lax"},
        {"secure = always same_site = none path = \"/a b\" max_age = 90s", "192.0.2.7",
         "; Path=/a b; Max-Age=90; HttpOnly; SameSite=None; Secure"},
        {"same_site = strict", "192.0.2.7", "; Path=/; HttpOnly; SameSite=Strict"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char options[256];
        snprintf(options, sizeof(options), "sticky_cookie { name = at %s }", cases[i].options);
        begin_with("", options, "", cases[i].peer); /* 10.0.0.1 is a trusted proxy */
        forwarded("GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-Proto: https, http\r\n\r\n");
        assert_string_equal(told(0) + 19, cases[i].attributes);
        end();
    }
}

static void what_is_no_id_names_nobody(void **state)
{
    (void)state;
    static const char *const cookies[] = {
        "at=",
        "at=0",
        "at=00000000000000000",
        "at=xyzxyzxyzxyzxyzx",
        "at=0x00000000000000",
        "at=0123456789abcdef",
        "at=127.0.0.1:2",
    };
    for (size_t i = 0; i < sizeof(cookies) / sizeof(*cookies); i++) {
        begin_with("", "sticky_cookie { name = at " SECRET " }", "", "192.0.2.7");
        ask(cookies[i]);
        assert_int_equal(sticky_server(&ex), -1);
        end();
    }
}

static void without_the_option_nobody_is_told(void **state)
{
    (void)state;
    begin_with("", "", "", "192.0.2.7");
    ask("at=0123456789abcdef");
    assert_int_equal(sticky_server(&ex), -1);
    assert_string_equal(told(0), "");
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cookie_leads_back_to_its_server),
        cmocka_unit_test(says_no_address_and_is_the_same_for_the_same_secret),
        cmocka_unit_test(has_the_attributes_that_were_asked_for),
        cmocka_unit_test(what_is_no_id_names_nobody),
        cmocka_unit_test(without_the_option_nobody_is_told),
    };
    return cmocka_run_group_tests_name("sticky", tests, NULL, NULL);
}
