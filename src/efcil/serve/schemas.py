"""What goes over the wire, with examples, for openapi.json."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


def shown(example: dict[str, Any], extra: Literal["ignore", "forbid"] = "ignore") -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [example]}, extra=extra)


class Problem(BaseModel):
    """Why a request was refused, in one sentence."""

    detail: str
    model_config = shown({"detail": "There is no class called 'cta'; did you mean cat?"})


class UndoProblem(Problem):
    """Why nothing was undone; after a class was forgotten also what going further back would take away."""

    takes_back: str | None = None


class Guess(BaseModel):
    name: str = Field(alias="class")
    probability: float
    model_config = shown({"class": "mug", "probability": 0.97})


class Answer(BaseModel):
    """What the model says of one photo."""

    photo: str = Field(description="the name of the file as it was sent")
    answer: str = Field(description="the most likely class, or unknown")
    unknown: bool = Field(description="whether the photo is unlike every class")
    familiarity: float | None = Field(description="how usual it is for the class it is taken for; null: not known")
    guesses: list[Guess] = Field(description="all classes, the most likely first")


class Answers(BaseModel):
    answers: list[Answer]
    model_config = shown(
        {
            "answers": [
                {
                    "photo": "desk.jpg",
                    "answer": "mug",
                    "unknown": False,
                    "familiarity": 0.62,
                    "guesses": [{"class": "mug", "probability": 0.97}, {"class": "bike", "probability": 0.03}],
                }
            ]
        }
    )


class Progress(BaseModel):
    stage: str
    done: int
    total: int = Field(description="0 where nobody knows how much there is")


class Lesson(BaseModel):
    """A lesson that was asked for."""

    id: str
    status: Literal["waiting", "running", "done", "failed", "lost"]
    classes: dict[str, int] = Field(description="photos of each class")
    time: str = Field(description="when it was asked for, by the clock of the server")
    progress: Progress | None
    report: dict[str, Any] | None = Field(description="what the lesson came to, as `efcil learn --json` prints it")
    error: str | None = Field(description="why it failed or was lost, in one sentence")
    undone: bool = Field(description="whether it was taken back later")
    model_config = shown(
        {
            "id": "5f0c8a1e2b7d9c34",
            "status": "done",
            "classes": {"mug": 12},
            "time": "2025-03-01 10:22:07",
            "progress": None,
            "report": {
                "classes": [{"class": "mug", "photos": 12, "accuracy": 1.0}],
                "how": "each photo as if it had not been taught (leave-one-out)",
                "old_before": 0.99,
                "old_after": 0.98,
                "confusions": [],
                "seconds": 1.7,
            },
            "error": None,
            "undone": False,
        }
    )


class Lessons(BaseModel):
    lessons: list[Lesson]


class Class(BaseModel):
    name: str = Field(alias="class")
    photos: int
    taught: str = Field(description="when photos of it were taught last")


class Classes(BaseModel):
    classes: list[Class]
    model_config = shown({"classes": [{"class": "mug", "photos": 12, "taught": "2025-03-01 10:22"}]})


class Undone(Classes):
    taken_back: str = Field(description="what was undone, in words")
    model_config = shown({"classes": [], "taken_back": "the lesson of mug (12) on 2025-03-01 10:22"})


class NewName(BaseModel):
    name: str = Field(description="what the class is called from now on")
    model_config = shown({"name": "cup"}, extra="forbid")


class Health(BaseModel):
    status: Literal["ok"]
    classes: int | None = None
    learning: bool | None = None
    model: str | None = None
    model_config = shown({"status": "ok", "classes": 3, "learning": False, "model": "things.efcil"})


def form(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The body of a request that is a form; such bodies are read here, not by FastAPI, which puts them on disk."""
    schema = {"type": "object", "properties": properties, "additionalProperties": False, **more}
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


PHOTOS = {
    "type": "array",
    "items": {"type": "string", "format": "binary"},
    "minItems": 1,
    "description": "image files: JPEG, PNG, WebP, GIF, BMP, TIFF, PPM, and AVIF and HEIC where they can be read",
}
ASK = form({"images": PHOTOS}, required=["images"])
TEACH = form(
    {
        "name": {"type": "string", "description": "the class of all images", "example": "mug"},
        "images": PHOTOS,
        "archive": {"type": "string", "format": "binary", "description": "instead of both: a zip of class folders"},
    }
)
