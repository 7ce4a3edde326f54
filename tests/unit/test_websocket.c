#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "http/websocket.h"

static void answers_the_key_of_the_rfc(void **state)
{
    (void)state;
    char out[WEBSOCKET_ACCEPT];
    assert_true(websocket_accept(out, STR("dGhlIHNhbXBsZSBub25jZQ==")));
    assert_memory_equal(out, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", WEBSOCKET_ACCEPT);
}

static void takes_keys_of_any_length(void **state)
{
    (void)state;
    char out[WEBSOCKET_ACCEPT], other[WEBSOCKET_ACCEPT], key[600];
    memset(key, 'k', sizeof(key));
    assert_true(websocket_accept(out, (struct str){key, 0}));
    assert_true(websocket_accept(other, (struct str){key, sizeof(key)}));
    assert_memory_not_equal(out, other, WEBSOCKET_ACCEPT);
}

static void no_two_keys_are_the_same(void **state)
{
    (void)state;
    char a[WEBSOCKET_KEY], b[WEBSOCKET_KEY];
    assert_true(websocket_key(a) && websocket_key(b));
    assert_memory_not_equal(a, b, WEBSOCKET_KEY);
    assert_memory_equal(a + WEBSOCKET_KEY - 2, "==", 2); /* 16 bytes */
    for (size_t i = 0; i < WEBSOCKET_KEY - 2; i++)
        assert_true(
            strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", a[i]));
}

static void is_asked_for_by_get_and_upgrade(void **state)
{
    (void)state;
    struct head head = {.method = M_GET, .upgrade = STR("websocket")};
    assert_true(websocket_is_asked_for(&head));
    head.upgrade = STR("tea, WebSocket");
    assert_true(websocket_is_asked_for(&head));
    head.upgrade = STR("tea");
    assert_false(websocket_is_asked_for(&head));
    head.upgrade = (struct str){NULL, 0};
    assert_false(websocket_is_asked_for(&head));
    head = (struct head){.method = M_POST, .upgrade = STR("websocket")};
    assert_false(websocket_is_asked_for(&head));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_the_key_of_the_rfc),
        cmocka_unit_test(takes_keys_of_any_length),
        cmocka_unit_test(no_two_keys_are_the_same),
        cmocka_unit_test(is_asked_for_by_get_and_upgrade),
    };
    return cmocka_run_group_tests_name("websocket", tests, NULL, NULL);
}
