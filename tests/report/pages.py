"""An HTML page, read by a strict parser."""

from html.parser import HTMLParser

VOID = {"meta", "br", "line"}


class Page(HTMLParser):
    """Collects tags and texts, and fails on tags that do not close in order."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.open, self.seen, self.texts, self.ids = [], [], [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def styled(self, tag, style):
        """Attributes of each ``tag`` that has the CSS class ``style``."""
        return [attrs for name, attrs in self.seen if name == tag and style in attrs.get("class", "").split()]
