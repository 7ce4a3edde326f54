#include "net_test.h"

/* What happened, a letter each. */
static char order[256];

static void note(char c)
{
    size_t n = strlen(order);
    assert_true(n + 1 < sizeof(order));
    order[n] = c;
    order[n + 1] = '\0';
}

static int set_up(void **state)
{
    order[0] = '\0';
    return set_up_loop(state);
}

struct named {
    struct task task;
    struct grave grave;
    struct message message;
    struct deadline deadline;
    char name;
    struct named *then; /* asked for when this one runs */
    int thread, number;
};

static void run(struct task *task)
{
    struct named *named = (struct named *)task;
    note(named->name);
    if (named->then)
        loop_task(&loop, &named->then->task);
}

static struct named named(char name)
{
    return (struct named){.task.run = run, .name = name};
}

static void a_task_runs_once_however_often_it_is_asked_for(void **state)
{
    (void)state;
    struct named a = named('a'), b = named('b');
    loop_enter(&loop);
    loop_task(&loop, &a.task);
    loop_task(&loop, &b.task);
    loop_task(&loop, &a.task);
    assert_string_equal(order, ""); /* not before the callback is over */
    loop_leave(&loop);
    assert_string_equal(order, "ab");
    loop_leave(&loop);
    assert_string_equal(order, "ab");
    IN_LOOP(loop_task(&loop, &a.task));
    assert_string_equal(order, "aba");
}

static void what_a_task_asks_for_runs_behind_it(void **state)
{
    (void)state;
    struct named a = named('a'), b = named('b'), c = named('c');
    a.then = &c;
    IN_LOOP((loop_task(&loop, &a.task), loop_task(&loop, &b.task)));
    assert_string_equal(order, "abc");
}

static void nest(struct task *task)
{
    note('(');
    loop_task(&loop, &((struct named *)task)->then->task);
    loop_leave(&loop); /* as from a callback that a task called */
    note(')');
}

static void tasks_never_run_inside_a_task(void **state)
{
    (void)state;
    struct named a = named('a'), outer = {.task.run = nest, .then = &a};
    IN_LOOP(loop_task(&loop, &outer.task));
    assert_string_equal(order, "()a");
}

static void a_cancelled_task_does_not_run(void **state)
{
    (void)state;
    for (int gone = 0; gone < 8; gone++) {
        struct named all[3] = {named('a'), named('b'), named('c')}, last = named('d');
        char expect[8] = "";
        size_t n = 0;
        order[0] = '\0';
        loop_enter(&loop);
        for (int i = 0; i < 3; i++)
            loop_task(&loop, &all[i].task);
        for (int i = 0; i < 3; i++) {
            if (gone & 1 << i)
                loop_cancel(&loop, &all[i].task);
            else
                expect[n++] = all[i].name;
        }
        loop_cancel(&loop, &last.task); /* harmless: it was not asked for */
        loop_task(&loop, &last.task);
        expect[n] = 'd';
        loop_leave(&loop);
        assert_string_equal(order, expect);
    }
}

/* ---- burials ---- */

static void bury(struct grave *grave)
{
    struct named *dead = (struct named *)((char *)grave - offsetof(struct named, grave));
    note(dead->name);
    if (dead->then)
        loop_bury(&loop, &dead->then->grave, bury);
    free(dead);
}

static struct named *mortal(char name)
{
    struct named *one = malloc(sizeof(*one));
    *one = named(name);
    return one;
}

static void on_event(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct named *one = arg;
    loop_enter(&loop);
    loop_bury(&loop, &one->grave, bury);
    loop_task(&loop, &one->task);
    note('-');
    loop_leave(&loop);
    note('|'); /* alive to the end of the callback */
    loop_stop(&loop);
}

static void the_dead_are_buried_at_the_end_of_the_turn(void **state)
{
    (void)state;
    struct named *a = mortal('a');
    a->then = mortal('b'); /* dies with it */
    a->task.run = run;
    struct event event;
    evtimer_assign(&event, loop.base, on_event, a);
    event_active(&event, EV_TIMEOUT, 1);
    /* `then` is a task of nobody's: run() asks for it, so it must be able to run. */
    loop_run(&loop);
    assert_string_equal(order, "-ab|ab");
    event_del(&event);
}

static void the_end_buries_who_is_left(void **state)
{
    set_up(state);
    loop_bury(&loop, &mortal('x')->grave, bury);
    loop_done(&loop);
    assert_string_equal(order, "x");
}

/* ---- letters ---- */

#define THREADS 4
#define LETTERS 2000

static int last_number[THREADS], letters;

static void on_letter(struct message *message)
{
    struct named *letter = (struct named *)((char *)message - offsetof(struct named, message));
    assert_int_equal(letter->number, last_number[letter->thread] + 1); /* in order */
    last_number[letter->thread] = letter->number;
    free(letter);
    if (++letters == THREADS * LETTERS)
        loop_stop(&loop);
}

static void *write_letters(void *arg)
{
    for (int i = 1; i <= LETTERS; i++) {
        struct named *letter = malloc(sizeof(*letter));
        *letter =
            (struct named){.message.run = on_letter, .thread = (int)(intptr_t)arg, .number = i};
        loop_post(&loop, &letter->message);
    }
    return NULL;
}

static void letters_of_every_thread_arrive_in_order(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    letters = 0;
    memset(last_number, 0, sizeof(last_number));
    for (intptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_letters, (void *)i), 0);
    loop_run(&loop);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(letters, THREADS * LETTERS);
}

static void a_letter_may_leave_tasks(struct message *message)
{
    struct named *letter = (struct named *)((char *)message - offsetof(struct named, message));
    note('m');
    loop_task(&loop, &letter->then->task);
    loop_stop(&loop);
}

static void tasks_of_a_letter_run_in_its_turn(void **state)
{
    (void)state;
    struct named t = named('t');
    struct named letter = {.message.run = a_letter_may_leave_tasks, .then = &t};
    loop_post(&loop, &letter.message);
    loop_run(&loop);
    assert_string_equal(order, "mt");
}

static void drop(struct message *message)
{
    struct named *letter = (struct named *)((char *)message - offsetof(struct named, message));
    note(letter->name);
    free(letter);
}

static void unread_letters_are_handed_back(void **state)
{
    (void)state;
    for (char c = 'a'; c < 'd'; c++) {
        struct named *letter = mortal(c);
        letter->message.run = on_letter;
        loop_post(&loop, &letter->message);
    }
    loop_discard(&loop, drop);
    assert_string_equal(order, "abc");
    turn(); /* the bell rings, and nobody is there */
    assert_string_equal(order, "abc");
}

/* ---- timers ---- */

static uint64_t due_at;

static void on_due(struct deadline *deadline)
{
    struct named *one = (struct named *)((char *)deadline - offsetof(struct named, deadline));
    note(one->name);
    assert_true(loop.now >= due_at);
    if (one->name == 'z')
        loop_stop(&loop);
}

static void a_deadline_comes_and_never_early(void **state)
{
    (void)state;
    struct named a = named('a'), b = named('b'), z = named('z');
    deadline_init(&a.deadline, on_due);
    deadline_init(&b.deadline, on_due);
    deadline_init(&z.deadline, on_due);
    loop_enter(&loop);
    loop_deadline(&loop, &a.deadline, 1);
    loop_deadline(&loop, &b.deadline, 1);
    loop_deadline(&loop, &b.deadline, 0); /* off */
    loop_deadline(&loop, &z.deadline, 30);
    due_at = loop.now + NS_PER_MS;
    loop_leave(&loop);
    loop_run(&loop);
    assert_string_equal(order, "az");
    deadline_end(&loop.wheel, &b.deadline);
}

static struct named late;

static void ask_late(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    loop_enter(&loop);
    note(*(const char *)arg);
    loop_late(&loop, &late.task);
    loop_leave(&loop);
}

/* Three descriptors are ready at a time: what all of them ask for runs once, behind the last,
 * and what that asks for still in the same turn. */
static void a_late_task_runs_behind_all_callbacks_of_the_turn(void **state)
{
    (void)state;
    struct named then = named('t'), dropped = named('x');
    struct event events[3];
    int fds[3][2];
    late = named('L');
    late.then = &then;
    for (int i = 0; i < 3; i++) {
        make_pair(fds[i]);
        assert_int_equal(write(fds[i][1], "x", 1), 1);
        event_assign(&events[i], loop.base, fds[i][0], EV_READ, ask_late, (void *)"c");
        event_add(&events[i], NULL);
    }
    event_base_loop(loop.base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
    assert_string_equal(order, "cccLt");
    /* cancelled: in the middle, at the end; and asked for again */
    IN_LOOP((loop_late(&loop, &dropped.task), loop_late(&loop, &late.task),
             loop_cancel(&loop, &dropped.task), loop_late(&loop, &dropped.task),
             loop_cancel(&loop, &dropped.task)));
    assert_string_equal(order, "cccLt");
    event_base_loop(loop.base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
    assert_string_equal(order, "cccLtLt");
    for (int i = 0; i < 3; i++) {
        close(fds[i][0]);
        close(fds[i][1]);
    }
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down_loop)
    const struct CMUnitTest tests[] = {
        T(a_task_runs_once_however_often_it_is_asked_for),
        T(what_a_task_asks_for_runs_behind_it),
        T(tasks_never_run_inside_a_task),
        T(a_cancelled_task_does_not_run),
        T(a_late_task_runs_behind_all_callbacks_of_the_turn),
        T(the_dead_are_buried_at_the_end_of_the_turn),
        cmocka_unit_test(the_end_buries_who_is_left),
        T(letters_of_every_thread_arrive_in_order),
        T(tasks_of_a_letter_run_in_its_turn),
        T(unread_letters_are_handed_back),
        T(a_deadline_comes_and_never_early),
    };
    return cmocka_run_group_tests_name("loop", tests, NULL, NULL);
}
