"""Credentials that a name tells: the value goes, the name stays; placeholders, words and code stay."""

from __future__ import annotations

import pytest

from tests.support.found import censored

# In two halves, so that scanners of repositories do not take them for leaks.
CHOSEN = "s3cr3t" + "-Pa55"
DRAWN = "aK3dE6gH9k" + "L2mN5pQ8rS1tU4"
BASE64 = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq" + "/K1SZFPTOtr/KBHBeksoGMGw=="

FOUND = {
    "a connection string": ("postgres://app:{}@db.example.com:5432/app", "letmein"),
    "one with the driver's name": ("mysql+pymysql://root:{}@127.0.0.1/x", CHOSEN),
    "one without a user": ("redis://:{}@cache:6379/0", DRAWN),
    "one to a cluster": ("mongodb+srv://u:{}@c0.example.net/?w=majority", "k9z"),
    "a web address": ("https://deploy:{}@git.example.com/a.git", DRAWN),
    "a URL in JSON": ('{{"url": "amqp://u:{}@mq:5672/"}}', CHOSEN),
    "an environment file": ("DB_PASSWORD={}\nX=1", CHOSEN),
    "a variable in Python": ('password = "{}"', CHOSEN),
    "a keyword argument": ("connect(user='x', password='{}')", CHOSEN),
    "an object in JavaScript": ("{{password: '{}'}}", CHOSEN),
    "JSON": ('{{"password": "{}"}}', "Summer" + "2024!"),
    "JSON in a string": (r'"{{\"password\": \"{}\"}}"', CHOSEN),
    "YAML": ("password: {}\nuser: x", CHOSEN),
    "a hash in Ruby": (":password => '{}'", CHOSEN),
    "Go": ('pwd := "{}"', CHOSEN),
    "an index": ('config["password"] = "{}"', CHOSEN),
    "a sentence": ("The password: {}.", CHOSEN),
    "Java's properties": ("spring.datasource.password={}", CHOSEN),
    "ADO.NET": ("Server=db;User Id=sa;Password={};Encrypt=True", "P@ssw" + "0rd"),
    "JDBC": ("jdbc:mysql://h/db?user=u&password={}&useSSL=false", CHOSEN),
    "Azure's storage": ("DefaultEndpointsProtocol=https;AccountName=x;AccountKey={};EndpointSuffix=y", BASE64),
    "Azure's service bus": ("SharedAccessKeyName=Root;SharedAccessKey={}", BASE64),
    "Datadog": ("DD_API_KEY={}", "0a1b2c3d4e5f60718293a4b5c6d7e8f9"),
    "Okta": ("OKTA_API_TOKEN: {}", "00" + "QCjAl4MlV-WPXM_lPmgqBgqRxHS3vA1vFJEqYS3A"),
    "Auth0": ('"client_secret": "{}"', DRAWN + "-" + DRAWN),
    "AWS": ("aws_secret_access_key = {}", "wJalrXUtnFEMI/K7MDENG" + "/bPxRfiCYEXAMPLEKEY"),
    "a query": ("https://x.example/?access_token={}&b=1", DRAWN),
    "a header": ("Authorization: Bearer {}", DRAWN),
    "a header for curl": ("-H 'Authorization: Basic {}'", "dXNlcjpwYXNzd29yZDE" + "yMw=="),
    "a header of its own": ("X-Api-Key: {}", DRAWN),
    "curl": ("curl -u admin:{} https://x.example", CHOSEN),
    "a sentence about a password": ("The password for Alice is {}.", "Tr0ub4dor" + "&3xy"),
    "one in German": ("Das Passwort lautet {}.", "Sommer" + "2024"),
    "a password in Markdown": ("**Password:** {}", CHOSEN),
    "a password in a table": ("| Password | {} |", CHOSEN),
    "a sentence about a key": ("Your API key for production is {}. Keep it.", "0a1b2c3d4e5f60718293a4b5c6d7e8f9"),
    "a key in Markdown": ("- **API key:** `{}`", DRAWN),
    "a key in a table": ("| API key | {} |", DRAWN),
    "a key below its name": ("Access token:\n    {}\n", DRAWN),
    "a personal token": ("GITHUB_PAT={}", DRAWN),
    "a key of an application": ("DD_APPLICATION_KEY: {}", "0a1b2c3d4e5f60718293a4b5c6d7e8f9"),
    "a key in an environment": ("TELNYX_KEY={}", DRAWN),
    "an element": ("<db><password>{}</password></db>", CHOSEN),
    "an attribute": ('<add key="Password" value="{}"/>', CHOSEN),
    "a short name": ("login: x\npass: {}\n", CHOSEN),
    "a short name in an environment": ("SMTP_PASS={}", CHOSEN),
    "a short name in code": ('admin_pass = "{}"', CHOSEN),
    "SQL": ("CREATE USER a PASSWORD '{}';", CHOSEN),
    "MySQL": ("CREATE USER a IDENTIFIED BY '{}';", CHOSEN),
    "PowerShell": ("ConvertTo-SecureString '{}' -AsPlainText -Force", CHOSEN),
    "an option": ("tool --db-password {} --verbose", CHOSEN),
    "mysql's option": ("mysql -h db -u root -p{} app", CHOSEN),
    "sshpass": ("sshpass -p '{}' ssh u@h", CHOSEN),
    "a registry": ("docker login -u me -p {} r.example", CHOSEN),
    "a .netrc": ("machine h login u password {}\n", CHOSEN),
    "requests": ("get(url, auth=('admin', '{}'))", CHOSEN),
    "a call": ('smtp.login("me@example.com", "{}")', CHOSEN),
    "a signature": ("?sv=2024&sig={}&se=x", "uB8fO3%2Bq0n5ZyVJw" + "T1xk7C9LhA%3D"),
}

LEFT = (
    "Enter your password: it must have 8-16 characters and a digit.",
    "password: string",
    'password = os.environ["DB_PASSWORD2"]',
    "password = getpass.getpass('Password: ')",
    "password=$DB_PASSWORD1 psql",
    "password: ${{ secrets.DB_PASSWORD_1 }}",
    "postgres://user:password@localhost/db",
    "postgres://${USER}:${PASSWORD}@host/db",
    "https://user:pass@example.com/",
    "http://localhost:8080/a@b",
    'token = "access_token"',
    "token = tokens[0], next_token = stream.next_token(4)",
    'api_key="YOUR_API_KEY_GOES_HERE"',
    "api_key='sk-your-key-goes-here'",
    "api_key = settings.OPENAI_API_KEY",
    "Authorization: Bearer <token>",
    "Authorization: Bearer $ACCESS_TOKEN_OF_MINE",
    "The secret: patience, practice and a good teacher.",
    "secretName: app-tls-certificate-v2",
    "<input type=password name=password1>",
    "token: Token = Token.from_string(value)",
    "the access key is under the mat",
    "The password is SHA256-hashed, Base64-encoded and case-sensitive.",
    "Your password is 8-16 characters long; the token is an opaque-string-of-32-characters.",
    "| password | varchar(255) | not null |\n| token | string (required) |",
    "The API key is sent in the X-Api-Key header.",
    "PRIMARY_KEY=customers_2024_id_seq",
    "The password was changed on 2024-01-01.",
    "signature: def f(a: int, b: str) -> None",
    "tokens: 1234567, token count: 4096",
    "passwordResetTokenExpiresInMinutes: 30",
    "::password::",
    "PASS: tests/test-1.sh, PASS: TestName2, --- PASS: x (0.00s)",
    "pass: true, bypass: yes2, compass: N52.5E13.4",
    "mysql -u root -p app, docker run -p 8080:80 nginx:1.25",
    "--password-stdin, --password <PASSWORD>, -passwd $PASS1",
    "account:password:UID:GID:GECOS:directory:shell, pw_name:pw_passwd:pw_uid:pw_gid:pw_gecos",
    "http://Benutzer:Passwort@Server:Port/, http://gebruiker:wachtwoord@server:poort/",
    "<password>changeme</password>, <password>${DB_PASSWORD1}</password>",
    "auth=('admin', password1)",
    'proxy_url="socks5h://<username>:<password>@proxy-host"',
)


@pytest.mark.parametrize("name", FOUND)
def test_the_value_goes_and_its_name_stays(name: str) -> None:
    template, value = FOUND[name]
    text, shown = template.format(value), template.format("[X]")
    for at in range(len(text)):
        assert censored("credential", [text[:at], text[at:]]) == shown
    assert censored("credential", list(text)) == shown


@pytest.mark.parametrize("text", LEFT)
def test_placeholders_words_and_code_stay(text: str) -> None:
    assert censored("credential", list(text)) == text
