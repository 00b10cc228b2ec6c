/* The bytes of an event, as gateway/wire/event_template.py has them, for `_bytes_path.c`. */

#define MAX_PLACES 8  /* of an event that may change */
#define MAX_FIGURE 11 /* digits */

enum { CONTENT = 'c', PADDING = 'p', FIGURE = 'f' }; /* kinds of places */

typedef struct {
    const char *text; /* borrowed */
    Py_ssize_t size;
} Part;

/* Parts with places between them, as a gateway.wire.event_template.EventTemplate has them. */
typedef struct {
    Part parts[MAX_PLACES + 1];
    unsigned char places[MAX_PLACES];
    int count; /* of places; -1: there is no such form */
} Form;

static int is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

/* Where an event of the template ends whose data begins at `at`, and what stands in its places; 0 if it is none. Is the
   content JSON's spelling of itself, in ASCII? */
static Py_ssize_t find_places(const Form *form, const char *data, Py_ssize_t at, Py_ssize_t size, Part *found, int *plain)
{
    for (int place = 0;; place++) {
        const Part part = form->parts[place];
        if (size - at < part.size || memcmp(data + at, part.text, (size_t)part.size) != 0)
            return 0;
        at += part.size;
        if (place == form->count)
            return at;
        const Py_ssize_t begin = at;
        switch (form->places[place]) {
        case CONTENT:
            for (; at < size && data[at] != '"'; at++) {
                const unsigned char byte = (unsigned char)data[at];
                if (byte < 0x20 || byte > 0x7e || byte == '\\') {
                    *plain = 0;
                    at += byte == '\\'; /* a quote behind it ends nothing */
                }
            }
            break;
        case PADDING:
            while (at < size && (is_digit(data[at]) || ((data[at] | 0x20) >= 'a' && (data[at] | 0x20) <= 'z')))
                at++;
            break;
        default:
            while (at < size && is_digit(data[at]) && at - begin < MAX_FIGURE)
                at++;
            if (at == begin || (data[begin] == '0' && at > begin + 1))
                return 0;
        }
        found[place] = (Part){data + begin, at - begin};
    }
}

static int is_plain(const char *text, Py_ssize_t size)
{
    for (Py_ssize_t at = 0; at < size; at++) {
        const unsigned char byte = (unsigned char)text[at];
        if (byte < 0x20 || byte > 0x7e || byte == '"' || byte == '\\')
            return 0;
    }
    return 1;
}

/* The event with this in its places, a new reference. */
static PyObject *event_of(const Form *form, const Part *found)
{
    Py_ssize_t size = 0;
    for (int place = 0; place <= form->count; place++)
        size += form->parts[place].size + (place < form->count ? found[form->places[place]].size : 0);
    PyObject *event = PyBytes_FromStringAndSize(NULL, size);
    if (event == NULL)
        return NULL;
    char *to = PyBytes_AsString(event);
    for (int place = 0; place <= form->count; place++) {
        const Part part = form->parts[place];
        memcpy(to, part.text, (size_t)part.size);
        to += part.size;
        if (place < form->count) {
            const Part given = found[form->places[place]];
            memcpy(to, given.text, (size_t)given.size);
            to += given.size;
        }
    }
    return event;
}

/* `places` are kinds where `most` is 0, and otherwise less than `most`. -1 with an exception. */
static int open_form(Form *form, PyObject *around, PyObject *places, int most)
{
    const Py_ssize_t count = !PyTuple_Check(around) || !PyBytes_Check(places) ? MAX_PLACES + 1 : PyTuple_Size(around) - 1;
    if (count > MAX_PLACES || PyBytes_Size(places) != (count < 0 ? 0 : count)) {
        PyErr_SetString(PyExc_ValueError, "a template has up to 8 places between bytes in a tuple");
        return -1;
    }
    form->count = (int)count;
    for (Py_ssize_t at = 0; at <= count; at++) {
        PyObject *part = PyTuple_GetItem(around, at); /* borrowed */
        if (PyBytes_AsStringAndSize(part, (char **)&form->parts[at].text, &form->parts[at].size) < 0)
            return -1;
        if (at < count) {
            const unsigned char place = (unsigned char)PyBytes_AsString(places)[at];
            if (most ? place >= most : place != CONTENT && place != PADDING && place != FIGURE) {
                PyErr_SetString(PyExc_ValueError, "a template has a place of another kind, or one that it has not");
                return -1;
            }
            form->places[at] = place;
        }
    }
    return 0;
}

