"""The frame of the dashboard: what every page below `/ui` has in common. Subjects bring the pages themselves.

    sessions   who is looking: a session's cookie, or the person whom a trusted proxy names
    inner      asks the API's own routes, in this process, as that person
    typed      what was typed and chosen in a form, as the API takes it
    namespaces the apps and the namespaces that a page lets its reader choose from
    routes     `PageRoute` and `FormRoute`: a page, and what a form on it does
    frame      navigation, problems, refreshes, and signing in and out
    html       templates, answers in HTML, styles, scripts and icons, and how values are written
    pictures   charts as SVG, drawn here, so that they need no script

**A page is a caller of the API like any other.** It reads by GET routes and acts by the others. So it shows nothing
that its reader may not see, each act is refused, checked and recorded as that of a program is, and no page can do what
a route cannot. It never touches the store.

Every page works without JavaScript. With it, a page asks for itself every few seconds, and only what has changed is
sent and put in place.
"""
